#pragma once
// y = x Wᵀ, without bias.

#include "ops/tensor.h"

namespace athanor::ops {

/// x [..., in], weight [out, in] → [..., out]. Backward adds dyᵀx into weight.grad.
Tensor linear(const Tensor& x, const Weight& weight);

/// grad [m, n] (fp32) += aᵀ b, with a [k, m], b [k, n] in the compute type. Summed in fp32 on tiles of ours, rounded
/// once before where the library multiplies bf16 (library_products.h).
void add_outer_product(const Tensor& grad, const Tensor& a, const Tensor& b);

}  // namespace athanor::ops
