#pragma once
// The two ends of a model: the embedding of tokens, learned vectors of positions, and the output layer.

#include <optional>

#include "arch/blocks/linear.h"
#include "config/families.h"

namespace athanor::inline arch {

/// A table with a row for each token, or for each position.
struct TableSpec {
  std::string name;  ///< "model.embed_tokens"
  int64_t rows = 0, width = 0;
  Role role;
  int tensor = -1;  ///< 0: tensor ranks divide the rows

  std::string weight() const { return name + ".weight"; }
  ParameterSpec parameter() const;
};

TableSpec make_embedding(const ModelConfig& model);
/// Nothing in a family whose positions turn queries and keys.
std::optional<TableSpec> make_positions(const ModelConfig& model);
/// Nothing if the output layer is tied to the embedding.
std::optional<LinearSpec> make_output(const ModelConfig& model);

}  // namespace athanor::inline arch
