#pragma once
// Linear units with a gate (Shazeer 2020): SwiGLU, silu(gate) · up, and GEGLU, gelu(gate) · up.

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns silu(gate) · up. Both have one shape, and are kept for backward.
Tensor swiglu(const Tensor& gate, const Tensor& up);

/// Returns gelu(gate) · up, with GELU in the approximation with tanh; as swiglu.
Tensor geglu(const Tensor& gate, const Tensor& up);

/// Writes the activation into `out`, without autograd.
void swiglu_into(const Tensor& gate, const Tensor& up, const Tensor& out);

/// Writes the gradients into dgate and dup, which may be gate and up themselves, without autograd.
void swiglu_backward_into(const Tensor& dout, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                          const Tensor& dup);

namespace portable {
Tensor swiglu(const Tensor& gate, const Tensor& up);
Tensor geglu(const Tensor& gate, const Tensor& up);
}

}  // namespace athanor::ops
