#pragma once
// Saves the state of a run to disk and loads it: full checkpoints and model-only folders.

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/rotation.h"
#include "checkpoint/verified_load.h"
#include "saves/moment_ages.h"
#include "train/train_state.h"

namespace athanor::inline saves {

/// Returns everything that a checkpoint stores in addition to tensors: progress (progress.h), updates of each
/// parameter, configuration, the routers' previous shares and biases.
nlohmann::json state_json(const TrainState& state);
/// The same in two parts: what the host has, and the routers' [sparse layers, experts], fp32; undefined: none.
nlohmann::json numbers_json(const TrainState& state);
void add_router_rows(nlohmann::json& state, const Tensor& previous_share, const Tensor& bias);

/// Returns which checkpoints a run keeps.
RotationOptions rotation_options(const CheckpointConfig& config);

/// Writes a full checkpoint into run_dir/checkpoints and keeps the newest two. Collective over the state's world: each
/// rank writes its own part (train/state_pieces.h).
/// @throws IoError on every rank, see save_rotating (checkpoint/rotation.h).
void save_checkpoint(TrainState& state);

/// Loads the tensors and numbers of a checkpoint, whatever layout wrote it; the weights that forward reads are rounded
/// from the master. Each rank reads what it owns, and the ranks compare all hashes in the same pass
/// (checkpoint/verified_load.h). Collective. Nothing of the state except tensors changes before that.
/// @throws CheckpointError if the checkpoint is of another model and checkpoint.allow_model_change does not allow the
/// difference. It is also thrown if the checkpoint lacks moments and checkpoint.fresh_moments does not ask for fresh
/// ones (moment_ages.h). Other reasons are wrong numbers (progress.h), damage, or a weight or moment that is not
/// finite.
/// @throws ConfigError if train.seed differs, since the order of the data would change under the cursor, or if models
/// are to be saved and `transformers` cannot hold the router bias.
void load_checkpoint(TrainState& state, const CheckpointReader& checkpoint, Chosen chosen = Chosen::kAsNewest);

/// Loads the newest of the checkpoints in a folder that is in order, as load_checkpoint does; which ones it passes over
/// is defined by load_newest (checkpoint/verified_load.h). Collective.
/// @return none if every one is damaged.
/// @throws as load_newest, and as load_checkpoint for a checkpoint that does not fit.
std::optional<LoadedNewest> load_newest_checkpoint(TrainState& state, const std::filesystem::path& folder);

/// Brings files of a checkpoint to where they are read. Both are collective, and throw the same on every rank.
class FileSupply {
 public:
  virtual ~FileSupply() = default;
  /// Makes these files, which this rank reads, readable in the checkpoint's folder.
  virtual void fetch(const std::set<std::string>& files) = 0;
  /// Puts other copies in the place of the files that this rank found damaged; false, on every rank, if none found any.
  virtual bool replace(const FileDamage& damage) = 0;
};

/// Loads a checkpoint whose files lie on several nodes, as load_checkpoint does, and compares the hashes of what is
/// read. Collective.
/// @return false, after a warning, if it is damaged or not finite, or could not be read; weights may then be half
/// filled, and the optimizer's state is zero.
/// @throws as load_checkpoint for a checkpoint that does not fit.
bool load_from_nodes(TrainState& state, const CheckpointReader& checkpoint, FileSupply& supply);

/// Loads the weights of a model-only checkpoint or of another `transformers` folder. If the run's vocabulary is larger,
/// its further rows begin as a fresh model's do. Moments, step and ledger stay as they are. Collective.
/// @throws CheckpointError if the folder is of another model and checkpoint.allow_model_change does not allow the
/// difference; the same on every rank, naming the first weight, if one is not finite.
void load_model_weights(TrainState& state, const std::filesystem::path& folder);

/// Loads step, tokens and data ledger of a model-only checkpoint from its athanor.json (see progress.h), and records
/// that moments are zero at that step (note_fresh_moments). For a folder from elsewhere without athanor.json the state
/// stays at step 0. Sends nothing: every rank reads the file.
/// @throws as apply_progress; CheckpointError if the file cannot be read, or a folder of this run has none.
void load_progress(TrainState& state, const std::filesystem::path& model_folder);

/// Writes run_dir/models/step-…, a folder that transformers loads, including athanor.json (step, tokens, ledger).
/// Collective: since no rank may hold the whole model, each rank writes its parts into a temporary folder next to the
/// final one; then the ranks share the work of making the files from them. The parts are removed even if the final
/// folder could not be written.
/// @return the folder.
/// @throws IoError on every rank.
std::filesystem::path save_model(TrainState& state);

}  // namespace athanor::inline saves
