#pragma once
// How far a run is: what a full checkpoint keeps beside its tensors, and a model-only one in athanor.json.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "train/train_state.h"

namespace athanor {

/// Step, tokens, seed, identity of the tokens, and ledger of the data.
nlohmann::json progress_json(const TrainState& state);

/// Sets the state's step, tokens and ledger to those that progress_json gave; an imported model (step 0) has drawn
/// nothing yet. Anybody may have written them: each number is checked for its range and against the others.
/// @param folder                 they are of; if its name is step-N, N must be their step.
/// @param vocabulary_may_change  another tokenizer is a warning.
/// @throws CheckpointError naming the number that is wrong; ConfigError if train.seed differs, since the order of the
///         data would change under the cursor.
void apply_progress(TrainState& state, const nlohmann::json& progress, const std::filesystem::path& folder,
                    bool vocabulary_may_change = false);

}  // namespace athanor
