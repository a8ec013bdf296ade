#pragma once
// A model as a list of blocks. What the program knows of a model's layers it reads here: names, shapes and parameters,
// and what each block computes.

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "arch/blocks/attention.h"
#include "arch/blocks/ends.h"
#include "arch/blocks/feed_forward.h"
#include "arch/blocks/norm.h"
#include "arch/blocks/sparse.h"

namespace athanor::inline arch {

/// x + norm(attention(norm(x))), then the same with the feed-forward; each of the norms may be missing.
struct LayerSpec {
  std::string name;      ///< "model.layers.3"
  std::string previous;  ///< "model.layers.2"; of the first layer the embedding's name
  int64_t index = 0;
  bool parallel = false;  ///< the feed-forward reads what attention reads, not the sum with its result
  std::optional<NormSpec> attention_norm, attention_out_norm;  ///< before attention, and after it
  AttentionSpec attention;
  std::optional<NormSpec> feed_forward_norm, feed_forward_out_norm;
  std::variant<FeedForwardSpec, SparseSpec> feed_forward;

  bool is_sparse() const { return std::holds_alternative<SparseSpec>(feed_forward); }
  const SparseSpec& sparse() const { return std::get<SparseSpec>(feed_forward); }
  const FeedForwardSpec& dense() const { return std::get<FeedForwardSpec>(feed_forward); }
  /// The name of the feed-forward, of either kind: "model.layers.3.mlp".
  const std::string& feed_forward_name() const { return is_sparse() ? sparse().name : dense().name; }
  void append_parameters(std::vector<ParameterSpec>& all) const;
};

struct ModelSpec {
  TableSpec embedding;
  double embedding_scale = 1;          ///< factor of its rows
  std::optional<TableSpec> positions;  ///< learned vectors that are added to the embedding
  std::vector<LayerSpec> layers;
  NormSpec final_norm;
  std::optional<LinearSpec> output;  ///< nothing if it is the embedding
  double output_cap = 0;             ///< logits become cap · tanh(logit / cap) with this cap; 0: none

  /// In the order of the forward pass.
  std::vector<ParameterSpec> parameters() const;
};

/// Returns one layer of a model, counted from 0. @throws ConfigError if model.family does not exist.
LayerSpec make_layer_spec(const ModelConfig& model, int64_t layer);
/// Returns all blocks of a model. @throws ConfigError if model.family does not exist.
ModelSpec make_model_spec(const ModelConfig& model);

/// A name of the model's places for observers: "model.layers.3.logits" is {3, ".logits"}. The layer is −1 if the place
/// belongs to no layer.
struct PlaceInLayer {
  int64_t layer = -1;
  std::string_view part;
};
PlaceInLayer place_in_layer(const FamilyNames& names, std::string_view place);

}  // namespace athanor::inline arch
