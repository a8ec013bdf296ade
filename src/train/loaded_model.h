#pragma once
// A model to be used, not trained: weights in the compute type, no gradients, no optimizer.

#include <filesystem>
#include <memory>
#include <optional>

#include "data/tokenizer/tokenizer.h"
#include "model/decoder.h"

namespace athanor {

struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<ParameterStore> parameters;
  std::unique_ptr<Decoder> decoder;
  Tokenizer tokenizer;
  std::optional<uint32_t> eos_id;

  /// Rows of the embedding beyond the tokenizer's are padding: never to be generated.
  int64_t num_tokens() const { return std::min<int64_t>(config.vocab_size, tokenizer.vocab_size()); }
};

/// @param path  as open_model_source.
/// @throws CheckpointError; DataError if it has no tokenizer, or one that does not fit.
LoadedModel load_model(const std::filesystem::path& path, at::ScalarType compute_type);

}  // namespace athanor
