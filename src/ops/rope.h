#pragma once
// Rotary positions: the table of angles, and the rotation of queries and keys.

#include "ops/tensor.h"

namespace athanor::ops {

/// cos and sin [..., head_dim/2], fp32, one row for each token.
struct Rotation {
  Tensor cos, sin;
};

/// Returns theta^(−2i/head_dim) for i in [0, head_dim/2), in fp32 as `transformers` computes it.
Tensor inverse_frequency(int64_t head_dim, double theta);

/// Returns cos and sin, times `scale`, of the angles position · frequency, [positions..., head_dim/2], in fp32 as
/// `transformers` computes them.
/// @param positions  int64, any shape.
/// @param frequency  [head_dim/2], fp32.
/// @param scale  [head_dim/2], fp32; undefined: 1.
Rotation make_rotation(const Tensor& positions, const Tensor& frequency, const Tensor& scale = {});

/// Returns x [..., num_heads, head_dim] rotated (kernels/rope.h). The rows of the rotation are those of x's leading
/// dims, in the same order.
Tensor rope(const Tensor& x, const Rotation& rotation);

namespace portable {
Tensor rope(const Tensor& x, const Rotation& rotation);
}

}  // namespace athanor::ops
