#pragma once
// Soft caps of logits: cap · tanh(x / cap).

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns cap · tanh(x / cap), fp32 inside, without autograd. A cap of 0 is none: x itself is returned.
Tensor soft_cap(const Tensor& x, double cap);

/// Replaces dy, the gradient of soft_cap(x, cap), by that of x.
void soft_cap_gradient_(const Tensor& dy, const Tensor& x, double cap);

namespace portable {
Tensor soft_cap(const Tensor& x, double cap);
void soft_cap_gradient_(const Tensor& dy, const Tensor& x, double cap);
}  // namespace portable

}  // namespace athanor::ops
