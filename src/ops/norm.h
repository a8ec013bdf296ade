#pragma once
// RMSNorm with a scale, and LayerNorm without parameters; over the last dim.

#include "ops/tensor.h"

namespace athanor::ops {

/// The rows of a partial sum of the weight's gradient, in every form of the norm: this fixes the order of its sum.
constexpr int64_t kRowsPerPartial = 64;

/// Returns x [..., width] · rsqrt(mean(x²) + eps) · weight [width], fp32 inside.
Tensor rms_norm(const Tensor& x, const Weight& weight, double eps);

/// Returns (x − mean) · rsqrt(var + eps), without parameters (OLMo).
Tensor layer_norm(const Tensor& x, double eps);

/// The residual stream after a branch, and its norm.
struct NormedSum {
  Tensor sum, normed;
};

/// Returns sum = x + branch (of one shape), rounded to their type, and normed = rms_norm(sum). One pass forward and one
/// backward, with the bits of the two separate ops. `sum` is kept for backward; x and branch are not.
NormedSum add_rms_norm(const Tensor& x, const Tensor& branch, const Weight& weight, double eps);
NormedSum add_layer_norm(const Tensor& x, const Tensor& branch, double eps);

namespace portable {
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
Tensor layer_norm(const Tensor& x, double eps);
}  // namespace portable

}  // namespace athanor::ops
