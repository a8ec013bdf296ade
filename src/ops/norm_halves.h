#pragma once
// RMSNorm in two halves, without autograd, for rows whose columns several ranks have: each sums over its own, the sums
// are added up over ranks, and with the means of whole rows each goes on. x, y, dy and dx are [..., width] of one
// shape, contiguous; sums, rstd, dots and means fp32, one value for each row.

#include "ops/tensor.h"

namespace athanor::ops {

/// sums = Σ x².
void square_sums_into(const Tensor& x, const Tensor& sums);

/// x · rstd · weight [width].
Tensor norm_scale(const Tensor& x, const Tensor& weight, const Tensor& rstd);

/// dots = Σ dy · weight · x̂, where x̂ = x · rstd.
void norm_dots_into(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dots);

/// dx = rstd · (dy · weight − x̂ · mean), given the dots' means over whole rows. Adds Σ dy · x̂ into weight.grad, where
/// there is one.
Tensor norm_gradient(const Tensor& dy, const Tensor& x, const Weight& weight, const Tensor& rstd, const Tensor& means);

namespace portable {
void square_sums_into(const Tensor& x, const Tensor& sums);
Tensor norm_scale(const Tensor& x, const Tensor& weight, const Tensor& rstd);
void norm_dots_into(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dots);
Tensor norm_gradient(const Tensor& dy, const Tensor& x, const Weight& weight, const Tensor& rstd, const Tensor& means);
}  // namespace portable

}  // namespace athanor::ops
