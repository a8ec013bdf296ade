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
  std::unique_ptr<OneRank> alone;
  std::unique_ptr<ModelState> state;
  Tokenizer tokenizer;
  std::optional<uint32_t> eos_id;

  Decoder& decoder() const { return *state->chunks.front(); }
  /// Returns the number of tokens that may be generated. Embedding rows beyond the tokenizer's are padding.
  int64_t num_tokens() const { return std::min<int64_t>(config.vocab_size, tokenizer.vocab_size()); }
};

/// Loads a model.
/// @param path  as in open_model_source.
/// @param chunk_tokens  tokens whose logits the decoder's `score` holds at the same time.
/// @throws CheckpointError; DataError if it has no tokenizer, or one that does not fit.
LoadedModel load_model(const std::filesystem::path& path, at::ScalarType compute_type,
                       int64_t chunk_tokens = DecoderOptions{}.loss_chunk_tokens);

}  // namespace athanor
