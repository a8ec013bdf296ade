#pragma once
// Counts how many updates each parameter's moments hold. Adam corrects the bias of the moments by that number. With the
// run's step in its place, the first update after fresh moments is too large or too small by the factor (1 − β1)/√(1 −
// β2): 3.2 at β2 = 0.999, 0.45 at 0.95.

#include <nlohmann/json.hpp>

#include "checkpoint/reader.h"
#include "train/state_pieces.h"

namespace athanor {

/// Returns the number of updates of every parameter of the model, {"NAME": 500, ...}: one number for each parameter,
/// however it is sharded.
nlohmann::json updates_json(const TrainState& state);

/// Sets the state's fresh_since from the result of updates_json; the state's step must be the checkpoint's. If
/// `updates` is null (the checkpoint is from before these numbers were stored) every parameter has had all updates.
/// @param where  the checkpoint's folder, for messages.
/// @throws CheckpointError naming the parameter whose number is missing or not from 0 to the step.
void apply_updates(TrainState& state, const nlohmann::json& updates, const std::string& where);

/// Records that the moments of all parameters are zero now.
void note_fresh_moments(TrainState& state);

/// How a start chose its checkpoint.
enum class Chosen {
  kByName,   ///< checkpoint.resume names it; it is of this run or of another
  kAsNewest  ///< it is the run's newest, from which the run continues
};

/// Decides whether all moments are read or all begin at zero. They begin at zero
/// - if checkpoint.fresh_moments asks for it and the checkpoint was chosen by name, or lacks moments (with kAsNewest an
///   earlier start has already begun at zero, and the checkpoint has what came after that);
/// - if the state is at step 0 and the checkpoint lacks moments, as an imported model does.
/// @throws CheckpointError naming the moments that the checkpoint lacks, in all other cases in which it lacks some.
Moments choose_moments(const TrainState& state, const CheckpointReader& checkpoint, Chosen chosen);

}  // namespace athanor
