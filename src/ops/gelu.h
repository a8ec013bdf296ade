#pragma once
// GELU: exact, or in the approximation with tanh; and that as the gate of a linear unit.

#include "kernels/gelu.h"
#include "ops/tensor.h"

namespace athanor::ops {

using kernels::GeluForm;

/// Returns x · Φ(x), or x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), fp32 inside. x is kept for backward.
Tensor gelu(const Tensor& x, GeluForm form);

/// Returns gelu(gate) · up with the approximation. Both have one shape, and are kept for backward.
Tensor geglu(const Tensor& gate, const Tensor& up);

namespace portable {
Tensor gelu(const Tensor& x, GeluForm form);
Tensor geglu(const Tensor& gate, const Tensor& up);
}

}  // namespace athanor::ops
