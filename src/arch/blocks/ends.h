#pragma once
// The two ends of a model: the embedding of tokens, and the output layer.

#include <optional>

#include "arch/blocks/linear.h"
#include "config/model_config.h"

namespace athanor::inline arch {

/// A table with a row for each token. Tensor ranks divide the rows.
struct EmbeddingSpec {
  std::string name;  ///< "model.embed_tokens"
  int64_t rows = 0, width = 0;

  std::string weight() const { return name + ".weight"; }
  ParameterSpec parameter() const;
};

EmbeddingSpec make_embedding(const ModelConfig& model);
/// Nothing if the output layer is tied to the embedding.
std::optional<LinearSpec> make_output(const ModelConfig& model);

}  // namespace athanor::inline arch
