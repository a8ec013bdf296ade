#pragma once
// Rotary positions: the table of angles, and the turn of queries and keys.

#include "ops/tensor.h"

namespace athanor::ops {

/// cos and sin [..., head_dim/2], fp32, one row for each token.
struct Rotation {
  Tensor cos, sin;
};

/// The angles position · theta^(−2i/head_dim), in fp32 as `transformers` computes them.
/// @param positions int64, any shape.
Rotation make_rotation(const Tensor& positions, int64_t head_dim, double theta);

/// x [..., num_heads, head_dim] with one row of the rotation for each leading index, in the same order.
Tensor rope(const Tensor& x, const Rotation& rotation);

namespace portable {
Tensor rope(const Tensor& x, const Rotation& rotation);
}

}  // namespace athanor::ops
