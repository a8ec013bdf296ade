#pragma once
// The dense feed-forward of a layer: down(silu(gate(x)) · up(x)), the same with gelu, or without a gate
// down(gelu(up(x))).

#include <optional>

#include "arch/blocks/linear.h"
#include "config/families.h"

namespace athanor::inline arch {

struct FeedForwardSpec {
  std::string name;  ///< "model.layers.3.mlp"
  FeedForwardKind kind = FeedForwardKind::kSwiGlu;
  std::optional<LinearSpec> gate;
  LinearSpec up, down;

  void append_parameters(std::vector<ParameterSpec>& all) const;
  /// Returns the forward FLOPs of the matrices for `tokens` tokens.
  double flops(double tokens) const;
};

/// Returns a feed-forward of the model's family with `width` inner columns.
FeedForwardSpec make_feed_forward(const ModelConfig& model, int64_t layer, const std::string& name, int64_t width);

}  // namespace athanor::inline arch
