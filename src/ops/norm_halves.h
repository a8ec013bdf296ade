#pragma once
// RMSNorm in two halves, without autograd, for rows whose columns are spread over several ranks: each rank sums over
// its columns, the sums are added up over ranks, and each rank continues with the means of whole rows. x, y, dy and dx
// are [..., width] of one shape, contiguous; sums, rstd, dots and means are fp32, one value for each row.

#include "ops/tensor.h"

namespace athanor::ops {

/// Sets sums = Σ x² over these columns.
void square_sums_into(const Tensor& x, const Tensor& sums);

/// Returns x · rstd · (weight [width] + offset), as RmsForm::offset in all functions here.
Tensor norm_scale(const Tensor& x, const Tensor& weight, const Tensor& rstd, double offset = 0);

/// Sets dots = Σ dy · (weight + offset) · x̂ over these columns, where x̂ = x · rstd.
void norm_dots_into(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dots,
                    double offset = 0);

/// Returns dx = rstd · (dy · (weight + offset) − x̂ · mean). Adds Σ dy · x̂ over rows into weight.grad, if it is defined.
/// @param means  the dots summed over ranks, divided by the width of a whole row.
Tensor norm_gradient(const Tensor& dy, const Tensor& x, const Weight& weight, const Tensor& rstd, const Tensor& means,
                     double offset = 0);

namespace portable {
void square_sums_into(const Tensor& x, const Tensor& sums);
Tensor norm_scale(const Tensor& x, const Tensor& weight, const Tensor& rstd, double offset = 0);
void norm_dots_into(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dots,
                    double offset = 0);
Tensor norm_gradient(const Tensor& dy, const Tensor& x, const Weight& weight, const Tensor& rstd, const Tensor& means,
                     double offset = 0);
}  // namespace portable

}  // namespace athanor::ops
