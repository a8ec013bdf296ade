#pragma once
// Token ids → rows of the embedding.

#include "ops/tensor.h"

namespace athanor::ops {

/// tokens [...] int64 → [..., hidden]. Backward adds each row's gradient in the order of the tokens, so runs repeat bit
/// for bit. The result requires grad although ids do not: it is where autograd's chain of the stage begins.
Tensor embedding(const Tensor& tokens, const Weight& weight);

}  // namespace athanor::ops
