#pragma once
// RMSNorm with a scale, LayerNorm without parameters; over the last dim.

#include "ops/tensor.h"

namespace athanor::ops {

/// x [..., width] · rsqrt(mean(x²) + eps) · weight [width], fp32 inside.
Tensor rms_norm(const Tensor& x, const Weight& weight, double eps);

/// (x − mean) · rsqrt(var + eps), no parameters (OLMo).
Tensor layer_norm(const Tensor& x, double eps);

namespace portable {
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
Tensor layer_norm(const Tensor& x, double eps);
}  // namespace portable

}  // namespace athanor::ops
