#pragma once
// y = x Wᵀ, without bias.

#include "ops/tensor.h"

namespace athanor::ops {

/// x [..., in], weight [out, in] → [..., out] in the compute type. Backward adds dyᵀx into weight.grad.
Tensor linear(const Tensor& x, const Weight& weight);

/// Adds aᵀ b to grad [m, n] (fp32), with a [k, m], b [k, n] in the compute type. Our tiles sum in fp32; if the library
/// multiplies bf16, the product is rounded once before it is added (tiles.h).
void add_outer_product(const Tensor& grad, const Tensor& a, const Tensor& b);

}  // namespace athanor::ops
