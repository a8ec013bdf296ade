#pragma once
// The two ends of a model: the embedding of tokens, learned vectors of positions, and the output layer.

#include <optional>

#include "arch/blocks/linear.h"
#include "config/model_config.h"

namespace athanor::inline arch {

/// A table with a row for each token, whose rows tensor ranks divide, or for each position, which all of them have.
struct TableSpec {
  std::string name;  ///< "model.embed_tokens"
  int64_t rows = 0, width = 0;
  Role role = Role::kEmbedding;

  std::string weight() const { return name + ".weight"; }
  ParameterSpec parameter() const;
};

TableSpec make_embedding(const ModelConfig& model);
/// Nothing in a family that rotates queries and keys.
std::optional<TableSpec> make_positions(const ModelConfig& model);
/// Nothing if the output layer is tied to the embedding.
std::optional<LinearSpec> make_output(const ModelConfig& model);

}  // namespace athanor::inline arch
