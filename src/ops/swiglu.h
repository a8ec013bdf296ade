#pragma once
// silu(gate) · up.

#include "ops/tensor.h"

namespace athanor::ops {

/// Both of one shape; keeps them for backward.
Tensor swiglu(const Tensor& gate, const Tensor& up);

/// Without autograd: `out` gets the activation.
void swiglu_into(const Tensor& gate, const Tensor& up, const Tensor& out);

/// Without autograd: dgate and dup may be gate and up themselves.
void swiglu_backward_into(const Tensor& dout, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                          const Tensor& dup);

namespace portable {
Tensor swiglu(const Tensor& gate, const Tensor& up);
}

}  // namespace athanor::ops
