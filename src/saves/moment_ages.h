#pragma once
// Counts how many updates each parameter's moments hold. Adam corrects the bias of the moments by that number. With the
// run's step in its place, the first update after fresh moments is too large or too small by the factor (1 − β1)/√(1 −
// β2): 3.2 at β2 = 0.999, 0.45 at 0.95.

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/reader.h"
#include "train/state_pieces.h"

namespace athanor::inline saves {

/// The member of a checkpoint's state that has these numbers.
inline constexpr const char* kOptimizerUpdates = "optimizer_updates";

/// Returns the number of updates of every parameter of the model, {"NAME": 500, ...}: one number for each parameter,
/// however it is sharded.
nlohmann::json updates_json(const TrainState& state);

/// Returns what OptimizerState::set_fresh_since takes, from the result of updates_json. If `updates` is null (the
/// checkpoint is from before these numbers were stored) every parameter has had all updates.
/// @param step   the checkpoint's.
/// @param where  the checkpoint's folder, for messages.
/// @throws CheckpointError naming the parameter whose number is missing or not from 0 to the step.
std::map<std::string, int64_t> read_updates(const ModelConfig& model, const nlohmann::json& updates, int64_t step,
                                            const std::string& where);

/// Records that the moments of all parameters are zero now.
void note_fresh_moments(TrainState& state);

/// How a start chose its checkpoint.
enum class Chosen {
  kByName,   ///< checkpoint.resume names it; it is of this run or of another
  kAsNewest  ///< it is the run's newest, from which the run continues
};

/// Returns the line for the log that tells why checkpoint.fresh_groups has no effect; empty if it is not set.
std::string idle_fresh_groups(const CheckpointConfig& config, const std::string& reason);

/// Decides whose state is read and whose begins at zero. All begins at zero
/// - if checkpoint.fresh_moments asks for it, and the checkpoint was chosen by name or lacks moments;
/// - if the checkpoint is of step 0 and lacks moments, as an imported model does.
/// With kAsNewest, moments that the checkpoint has are kept: an earlier start has already begun at zero, and these came
/// after that.
/// The state of the parameters in checkpoint.fresh_groups begins at zero if the checkpoint was chosen by name, or lacks
/// it.
/// @param step  the checkpoint's.
/// @param note  gets a line for the log if the configuration asks for fresh moments: whose they are, or why
///              checkpoint.fresh_groups has no effect.
/// @throws CheckpointError naming the state that the checkpoint lacks and what to set, in all other cases in which it
///         lacks some.
FreshState choose_fresh_state(const TrainState& state, const CheckpointReader& checkpoint, Chosen chosen, int64_t step,
                              std::string& note);

}  // namespace athanor::inline saves
