#pragma once
// RMSNorm with a scale, and LayerNorm without parameters; over the last dim.

#include "ops/tensor.h"

namespace athanor::ops {

/// The number of rows in one partial sum of the weight's gradient, the same in every form of the norm, so that all add
/// in one order.
constexpr int64_t kRowsPerPartial = 64;

/// How RMSNorm is computed. A double is an eps.
struct RmsForm {
  double eps = 0;
  double offset = 0;  ///< is added to the weight: 1 in Gemma, whose weights begin as zeros

  RmsForm(double epsilon, double weight_offset = 0) : eps(epsilon), offset(weight_offset) {}
};

/// Returns x [..., width] · rsqrt(mean(x²) + eps) · (weight [width] + offset), fp32 inside.
Tensor rms_norm(const Tensor& x, const Weight& weight, const RmsForm& form);

/// Returns (x − mean) · rsqrt(var + eps), without parameters (OLMo).
Tensor layer_norm(const Tensor& x, double eps);

/// The residual stream after a branch was added, and its norm; both of the shape of x.
struct NormedSum {
  Tensor sum, normed;
};

/// Returns sum = x + branch (of one shape), rounded to their type, and normed = rms_norm(sum). One pass forward and one
/// backward, with the bits of an add and rms_norm. `sum` is kept for backward; x and branch are not.
NormedSum add_rms_norm(const Tensor& x, const Tensor& branch, const Weight& weight, const RmsForm& form);
/// As add_rms_norm, with layer_norm.
NormedSum add_layer_norm(const Tensor& x, const Tensor& branch, double eps);

namespace portable {
Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsForm& form);
Tensor layer_norm(const Tensor& x, double eps);
}  // namespace portable

}  // namespace athanor::ops
