#pragma once
// How many updates each parameter's moments hold. Adam corrects their bias by that number: with the run's step instead,
// the first update after fresh moments is (1 − β1)/√(1 − β2) of right: 3.2 times too large at β2 = 0.999, 0.45 at 0.95.

#include <nlohmann/json.hpp>

#include "checkpoint/reader.h"
#include "train/state_pieces.h"

namespace athanor {

/// The updates of every parameter of the model: {"NAME": 500, ...}. One number for each, however it is sharded.
nlohmann::json updates_json(const TrainState& state);

/// Sets the state's fresh_since, whose step is the checkpoint's, from what updates_json gave; from null (a checkpoint
/// from before it was kept) every parameter has had all updates. @throws CheckpointError naming what is wrong.
void apply_updates(TrainState& state, const nlohmann::json& updates, const std::string& where);

/// The moments of all parameters are zero now.
void note_fresh_moments(TrainState& state);

/// How a start came by its checkpoint.
enum class Chosen {
  kByName,   ///< checkpoint.resume names it, of this run or of another
  kAsNewest  ///< the run goes on
};

/// Are the moments to be read, or to begin at zero? They begin where checkpoint.fresh_moments asks for it (of a run
/// that goes on, whose request was met before, only if its checkpoint lacks some), and in a run that has not taken a
/// step. @throws CheckpointError naming the moments that the checkpoint lacks, if nobody asked.
Moments choose_moments(const TrainState& state, const CheckpointReader& checkpoint, Chosen chosen);

}  // namespace athanor
