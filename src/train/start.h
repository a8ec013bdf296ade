#pragma once
// From a configuration to a state that can take its next step: fresh, resumed, or begun from a model.

#include <memory>
#include <vector>

#include "train/run_data.h"
#include "train/train_state.h"

namespace athanor {

struct StartedRun {
  std::vector<StageData> stages;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<TrainState> state;
  bool from_scratch = false;  ///< freshly initialised, not resumed
};

/// What is wrong with the layout on so many ranks (find_layout_faults), or names parameters that are not there, once
/// the model is known that model.from names.
/// @throws ConfigError; CheckpointError for that folder.
void refuse_misfits(RunConfig config, int world_size);

/// How the world is to be opened for a run.
comm::WorldOptions world_options(const RunConfig& config);

/// Opens and verifies data, checks everything that can be checked, opens the run folder and fills the state.
/// Collective; the world must outlive the run.
StartedRun start_run(RunConfig config, comm::World& world);

}  // namespace athanor
