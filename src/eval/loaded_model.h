#pragma once
// Loads a model for use, not for training: weights in the compute type, no gradients, no optimizer; on one rank or on
// the ranks of a layout.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model_source.h"
#include "model/model_state.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline eval {

struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<OneRank> alone;      ///< the world and mesh of one rank; null for a model on a job's ranks
  std::unique_ptr<Mesh> shared;        ///< the mesh of a job's ranks; null for a model on one rank
  std::unique_ptr<ModelState> state;   ///< this rank's part: without a pipeline one stage, the whole model
  std::optional<Tokenizer> tokenizer;  ///< on the first rank; none on the others
  std::optional<uint32_t> eos_id;      ///< end-of-document token; none if it is not known
  std::vector<uint32_t> end_ids;       ///< any of them ends a text that is continued
  /// Tokens that may be generated: embedding rows beyond the tokenizer's are padding. The same on every rank.
  int64_t num_tokens = 0;
  ModelSource source;  ///< where the weights came from

  Decoder& decoder() const { return *state->chunks.front(); }
  at::Device device() const { return state->device(); }
};

struct LoadOptions {
  at::ScalarType compute_type = at::kFloat;                   ///< at::kBFloat16 or at::kFloat
  int64_t chunk_tokens = DecoderOptions{}.loss_chunk_tokens;  ///< tokens whose logits are held at the same time
  at::Device device = at::kCPU;                               ///< where the weights are, and all is computed
  /// "table.key=value", as in --set: the layout (parallelism.*, topology.*) and moe.dispatch. By default each rank has
  /// the whole model.
  std::vector<std::string> overrides = {};
};

/// Loads a model on this process alone, whatever launcher started it.
/// @param path  a run folder, a checkpoint or a `transformers` folder (checkpoint/model_source.h).
/// @throws CheckpointError, also if a weight is not finite in the compute type; DataError if it has no tokenizer, or
/// one that does not fit.
LoadedModel load_model(const std::filesystem::path& path, const LoadOptions& options = {});

/// Loads a model on the ranks of a job. The first rank finds and verifies the folder, the others open the same one;
/// each part is read by one of the ranks that hold it, and shared. Collective.
/// @param world   must outlive the model.
/// @param opened  on the first rank: what open_model_source(path) gave, if it was called already.
/// @throws as above; ConfigError if the overrides are wrong, name other fields, or the layout does not fit.
LoadedModel load_model(const std::filesystem::path& path, comm::World& world, const LoadOptions& options = {},
                       std::optional<ModelSource> opened = {});

}  // namespace athanor::inline eval
