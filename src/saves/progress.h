#pragma once
// The progress of a run: how far it has come, with which seed and on which tokens. A full checkpoint stores it in
// addition to its tensors, a model-only checkpoint in athanor.json.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "train/train_state.h"

namespace athanor::inline saves {

/// Returns step, tokens, seed, identity of the tokens, and ledger of the data.
nlohmann::json progress_json(const TrainState& state);

/// Returns the state's position with step, tokens and ledger of `progress` (see progress_json). At step 0 (an imported
/// model) nothing has been drawn, so ledger, seed and tokens are not looked at. The numbers may come from any program:
/// each is checked for its range and against the others.
/// @param folder                 the folder that they are from; if its name is step-N, N must be their step.
/// @param vocabulary_may_change  another tokenizer causes only a warning.
/// @throws CheckpointError naming the number that is wrong, or if the run's data have other tokens; ConfigError if
/// train.seed differs, since the order of the data would change under the cursor.
RunPosition read_progress(const TrainState& state, const nlohmann::json& progress, const std::filesystem::path& folder,
                          bool vocabulary_may_change = false);
/// Sets the state's position to the result of read_progress.
void apply_progress(TrainState& state, const nlohmann::json& progress, const std::filesystem::path& folder,
                    bool vocabulary_may_change = false);

}  // namespace athanor::inline saves
