#pragma once
// The dense feed-forward of a layer: two matrices with an activation between them, or three, of which one gates.

#include <optional>

#include "arch/blocks/linear.h"
#include "config/families.h"

namespace athanor::inline arch {

struct FeedForwardSpec {
  std::string name;  ///< "model.layers.3.mlp"
  Activation activation = Activation::kSilu;
  std::optional<LinearSpec> gate;  ///< down(activation(gate(x)) · up(x)); without it down(activation(up(x)))
  LinearSpec up, down;

  std::vector<ParameterSpec> parameters() const;
  /// Returns the forward FLOPs of the matrices for `tokens` tokens.
  double flops(double tokens) const;
};

/// Returns a feed-forward of the model's family with `width` inner columns.
FeedForwardSpec make_feed_forward(const ModelConfig& model, int64_t layer, const std::string& name, int64_t width);

}  // namespace athanor::inline arch
