#pragma once
// The parameter of a linear layer, of which every block with matrices consists.

#include "arch/parameter.h"

namespace athanor::inline arch {

/// y = x Wᵀ.
struct LinearSpec {
  std::string name;  ///< "model.layers.3.self_attn.q_proj"
  int64_t rows = 0, columns = 0;
  Role role;
  int64_t layer = -1;
  int tensor = -1;  ///< the dim of W that tensor ranks divide
  bool of_key_heads = false;

  std::string weight() const { return name + ".weight"; }
  ParameterSpec parameter() const;
  /// Returns the forward FLOPs for `tokens` tokens.
  double flops(double tokens) const;
};

/// Returns the FLOPs of a product of matrices [m, k] and [k, n]: one multiply-add is two.
inline double matmul_flops(double m, double n, double k) { return 2 * m * n * k; }

}  // namespace athanor::inline arch
