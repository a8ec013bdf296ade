#pragma once
// GELU: exact, or in the approximation with tanh.

#include "kernels/gelu.h"
#include "ops/tensor.h"

namespace athanor::ops {

using kernels::GeluForm;

/// Returns x · Φ(x), or x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), fp32 inside. x is kept for backward.
Tensor gelu(const Tensor& x, GeluForm form);

namespace portable {
Tensor gelu(const Tensor& x, GeluForm form);
}

}  // namespace athanor::ops
