#pragma once
// Loads a model for use, not for training: weights in the compute type, no gradients, no optimizer.

#include <filesystem>
#include <memory>
#include <optional>

#include "model/model_state.h"
#include "tokenizer/tokenizer.h"

namespace athanor {

struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<OneRank> alone;     ///< the world and mesh of one rank that `state` needs
  std::unique_ptr<ModelState> state;  ///< the whole model, as one pipeline stage
  Tokenizer tokenizer;
  std::optional<uint32_t> eos_id;  ///< end-of-document token; none if it is not known

  Decoder& decoder() const { return *state->chunks.front(); }
  /// Returns the number of tokens that may be generated. Embedding rows beyond the tokenizer's are padding.
  int64_t num_tokens() const { return std::min<int64_t>(config.vocab_size, tokenizer.vocab_size()); }
};

/// Loads a model. Not collective: the calling process loads the whole model.
/// @param path  a run folder, a checkpoint or a `transformers` folder (checkpoint/model_source.h).
/// @param compute_type  at::kBFloat16 or at::kFloat.
/// @param chunk_tokens  tokens whose logits the decoder's `score` holds at the same time.
/// @param device        where the weights are, and everything is computed.
/// @throws CheckpointError; DataError if it has no tokenizer, or one that does not fit.
LoadedModel load_model(const std::filesystem::path& path, at::ScalarType compute_type,
                       int64_t chunk_tokens = DecoderOptions{}.loss_chunk_tokens, at::Device device = at::kCPU);

}  // namespace athanor
