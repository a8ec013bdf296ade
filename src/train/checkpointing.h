#pragma once
// Between the state of a run and what is kept of it on disk.

#include <filesystem>

#include "checkpoint/reader.h"
#include "train/moment_ages.h"
#include "train/train_state.h"

namespace athanor {

/// Everything a checkpoint stores beside tensors: step, updates of each parameter, ledger of the data, seed,
/// configuration, the router's previous shares and bias.
nlohmann::json state_json(const TrainState& state);

/// Writes a full checkpoint into run_dir/checkpoints and keeps the newest two. Collective: each rank writes what is its
/// own (train/state_pieces.h). @throws IoError on every rank, see save_rotating.
void save_checkpoint(TrainState& state);

/// Reads tensors and numbers back, whatever layout wrote them; what forward reads is rounded from the master.
/// Collective.
/// @throws CheckpointError if it is of another model than checkpoint.allow_model_change lets it be, or lacks moments
/// and checkpoint.fresh_moments does not ask for fresh ones (moment_ages.h); ConfigError if train.seed differs, since
/// the order of the data would change under the cursor.
void load_checkpoint(TrainState& state, const CheckpointReader& checkpoint, Chosen chosen = Chosen::kAsNewest);

/// Weights of a model-only checkpoint or another folder of `transformers`, as far as the run's model has them; rows of
/// a larger vocabulary begin as a fresh model's. Moments stay fresh. Collective.
/// @throws CheckpointError if it is of another model than checkpoint.allow_model_change lets it be.
void load_model_weights(TrainState& state, const std::filesystem::path& folder);

/// Step, tokens and data ledger of a model-only checkpoint (its athanor.json, see progress.h); moments are fresh from
/// there on. A folder from elsewhere that has none begins at step 0. @throws CheckpointError if one of this run has
/// none.
void load_progress(TrainState& state, const std::filesystem::path& model_folder);

/// Writes run_dir/models/step-… : a folder that transformers loads, with athanor.json (step, tokens, ledger) beside it.
/// Collective: no rank may hold the whole model, so each writes its parts beside the place, the ranks share the files
/// that are made of these, and the parts go, whether or not it could be written. @return the folder. @throws IoError on
/// every rank.
std::filesystem::path save_model(TrainState& state);

}  // namespace athanor
