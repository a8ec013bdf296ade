#pragma once
// x · scale + bias along the last dim: the biases of linear layers, and the parameters of LayerNorm.

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns x [..., width] · scale [width] + bias [width], fp32 inside and rounded once. Without a scale (undefined) it
/// is x + bias. Backward adds the parameters' gradients in partial sums of kRowsPerPartial rows (ops/norm.h), whose
/// order no number of threads changes. x is kept for backward if there is a scale.
Tensor affine(const Tensor& x, const Weight& scale, const Weight& bias);

namespace portable {
Tensor affine(const Tensor& x, const Tensor& scale, const Tensor& bias);
}

}  // namespace athanor::ops
