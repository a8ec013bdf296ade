#pragma once
// y = x Wᵀ, without bias.

#include "ops/tensor.h"

namespace athanor::ops {

/// x [..., in], weight [out, in] → [..., out]. Backward adds dyᵀx into weight.grad.
Tensor linear(const Tensor& x, const Weight& weight);

/// grad [m, n] (fp32) += aᵀ b, with a [k, m], b [k, n] in the compute type. Summed in fp32 on tiles of ours; where the
/// library multiplies bf16, the product is rounded once before it is added, as it has no fp32 result for bf16 operands.
void add_outer_product(const Tensor& grad, const Tensor& a, const Tensor& b);

namespace library {
/// The same by the library, whatever is chosen.
void add_outer_product(const Tensor& grad, const Tensor& a, const Tensor& b);
}  // namespace library

}  // namespace athanor::ops
