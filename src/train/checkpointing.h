#pragma once
// Saves the state of a run to disk and loads it: full checkpoints and model-only folders.

#include <filesystem>

#include "checkpoint/reader.h"
#include "train/moment_ages.h"
#include "train/train_state.h"

namespace athanor {

/// Returns everything that a checkpoint stores in addition to tensors: step, updates of each parameter, ledger of the
/// data, seed, configuration, the router's previous shares and bias.
nlohmann::json state_json(const TrainState& state);

/// Writes a full checkpoint into run_dir/checkpoints and keeps the newest two. Collective: each rank writes its own
/// part (train/state_pieces.h).
/// @throws IoError on every rank, see save_rotating.
void save_checkpoint(TrainState& state);

/// Loads the tensors and numbers of a checkpoint, whatever layout wrote it; the weights that forward reads are rounded
/// from the master. Collective.
/// @throws CheckpointError if the checkpoint is of another model and checkpoint.allow_model_change does not allow the
/// difference, or if it lacks moments and checkpoint.fresh_moments does not ask for fresh ones (moment_ages.h);
/// ConfigError if train.seed differs, since the order of the data would change under the cursor.
void load_checkpoint(TrainState& state, const CheckpointReader& checkpoint, Chosen chosen = Chosen::kAsNewest);

/// Loads the weights of a model-only checkpoint or of another `transformers` folder, as far as the run's model has
/// them. Rows of a larger vocabulary begin as a fresh model's do. Moments stay fresh. Collective.
/// @throws CheckpointError if the folder is of another model and checkpoint.allow_model_change does not allow the
/// difference.
void load_model_weights(TrainState& state, const std::filesystem::path& folder);

/// Loads step, tokens and data ledger of a model-only checkpoint from its athanor.json (see progress.h); moments are
/// fresh from there on. A folder from elsewhere without athanor.json begins at step 0.
/// @throws CheckpointError if a folder of this run has no athanor.json.
void load_progress(TrainState& state, const std::filesystem::path& model_folder);

/// Writes run_dir/models/step-…, a folder that transformers loads, including athanor.json (step, tokens, ledger).
/// Collective: no rank may hold the whole model, so each rank writes its parts into a folder next to the place, then
/// the ranks share the work of making the files from them; the parts are removed even if the folder could not be
/// written.
/// @return the folder.
/// @throws IoError on every rank.
std::filesystem::path save_model(TrainState& state);

}  // namespace athanor
