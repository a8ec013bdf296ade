#pragma once
// Gives a run's state the values that it begins with: those of a checkpoint of the run or of another one, those of a
// model, or random weights.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "checkpoint/verified_load.h"
#include "saves/local_start.h"
#include "saves/resume_point.h"
#include "train/train_state.h"

namespace athanor::inline saves {

struct FilledState {
  std::filesystem::path from = {};          ///< where it came from; empty if from nothing, or from model.from
  bool random = false;                      ///< whether its weights are random
  std::optional<PutAside> not_finite = {};  ///< a newer checkpoint that was passed over
  std::optional<int64_t> saved_step = {};   ///< the step that the run's folder has, if it is not the state's
};

/// Fills the state from what `begin` and `local` have found, and passes over what is damaged, with warnings. If it
/// comes from a local checkpoint, `begin` becomes that of a run that continues from its newest checkpoint. Collective.
/// @throws CheckpointError if nothing that may be taken is in order, or what is there does not fit.
FilledState fill_state(TrainState& state, ResumePoint& begin, const LocalStart& local);

}  // namespace athanor::inline saves
