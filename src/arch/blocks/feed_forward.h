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
  /// The configuration's key for the inner columns, and which blocks have them: "experts", …; "": they follow from
  /// another width.
  std::string width_key = "model.intermediate_size";
  const char* blocks = "dense layers";

  void append_parameters(std::vector<ParameterSpec>& all) const;
  /// Returns the forward FLOPs of the matrices for `tokens` tokens.
  double flops(double tokens) const;
  /// Adds why its columns cannot be divided among as many tensor ranks.
  void check_tensor_ranks(int64_t degree, Findings& found) const {
    if (!width_key.empty()) check_width(width_key, up.rows, blocks, degree, found);
  }
};

/// Returns a feed-forward of the model's family with `width` inner columns.
FeedForwardSpec make_feed_forward(const ModelConfig& model, int64_t layer, const std::string& name, int64_t width);

}  // namespace athanor::inline arch
