#pragma once
// The steps between the projection of queries and keys and attention, in one pass: norm, clipping, rotation.

#include "ops/norm.h"
#include "ops/rope.h"

namespace athanor::ops {

struct NormRope {
  enum class Norm { kNone, kWhole, kHead };

  Norm norm = Norm::kNone;  ///< kWhole: over a token's heads together; kHead: over each head
  double eps = 0;
  double clip = 0;  ///< values are kept within ±clip, before a norm of heads and after one of the whole; 0: no clipping
  double offset = 0;  ///< RmsForm::offset of the norm

  RmsForm form() const { return {eps, offset}; }
};

/// x [B, T, heads · head_dim] → [B, T, heads, head_dim]. The result has the bits, forward and backward, of `rms_norm`,
/// `clamp` and `rope` in the order of `how`; no intermediate result is kept for backward, only x and the norm's rstd.
/// @param weight  of the norm, [heads · head_dim] or [head_dim]; undefined without a norm.
Tensor norm_rope(const Tensor& x, const Weight& weight, const NormRope& how, const Rotation& rotation,
                 int64_t num_heads);

namespace portable {
/// Calls the portable forms of the three ops.
Tensor norm_rope(const Tensor& x, const Tensor& weight, const NormRope& how, const Rotation& rotation,
                 int64_t num_heads);
}  // namespace portable

}  // namespace athanor::ops
