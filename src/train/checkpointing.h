#pragma once
// Between the state of a run and what is kept of it on disk.

#include <filesystem>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "train/train_state.h"

namespace athanor {

/// Everything a checkpoint stores beside tensors: step, ledger of the data, seed, configuration, the router's previous
/// shares and bias.
nlohmann::json state_json(const TrainState& state);

/// The slices of master and moments that this process holds, as "master/NAME", "exp_avg/NAME", "exp_avg_sq/NAME".
std::vector<PieceView> state_pieces(const TrainState& state);

/// Writes a full checkpoint into run_dir/checkpoints and keeps the newest two. @throws IoError, see save_rotating.
void save_checkpoint(const TrainState& state);

/// Reads tensors and numbers back; what forward reads is rounded from the master.
/// @throws CheckpointError if it is of another model; ConfigError if train.seed differs, since the order of the data
/// would change under the cursor.
void load_checkpoint(TrainState& state, const CheckpointReader& checkpoint);

/// Step, tokens and data ledger of a model-only checkpoint (its athanor.json); moments stay fresh.
void load_progress(TrainState& state, const std::filesystem::path& model_folder);

/// Writes run_dir/models/step-… : a folder that transformers loads, with athanor.json (step, tokens, ledger) beside it.
/// @return the folder. @throws IoError.
std::filesystem::path save_model(const TrainState& state);

}  // namespace athanor
