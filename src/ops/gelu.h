#pragma once
// GELU in the approximation with tanh.

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), fp32 inside. x is kept for backward.
Tensor gelu_tanh(const Tensor& x);

namespace portable {
Tensor gelu_tanh(const Tensor& x);
}

}  // namespace athanor::ops
