#pragma once
// What happens to queries and keys between their projection and attention, in one pass: norm, clipping, rotation.

#include "ops/rope.h"

namespace athanor::ops {

struct NormRope {
  enum class Norm { kNone, kWhole, kHead };

  Norm norm = Norm::kNone;  ///< over a token's heads together, or over each
  double eps = 0;
  double clip = 0;  ///< values are kept within ±clip, before a norm of heads and after one of the whole; 0: as they are
};

/// x [B, T, heads · head_dim] → [B, T, heads, head_dim]. Bit for bit, forward and backward, what `rms_norm`, `clamp`
/// and `rope` give one after the other; only x is kept for backward.
/// @param weight  of the norm, [heads · head_dim] or [head_dim]; undefined without one.
Tensor norm_rope(const Tensor& x, const Weight& weight, const NormRope& how, const Rotation& rotation,
                 int64_t num_heads);

namespace portable {
/// The three ops, as their own portable forms.
Tensor norm_rope(const Tensor& x, const Tensor& weight, const NormRope& how, const Rotation& rotation,
                 int64_t num_heads);
}  // namespace portable

}  // namespace athanor::ops
