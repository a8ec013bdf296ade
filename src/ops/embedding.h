#pragma once
// The embedding: token ids → rows of a table.

#include "ops/tensor.h"

namespace athanor::ops {

/// tokens [...] int64, weight [V, hidden] → [..., hidden]. Backward adds each row's gradient into weight.grad in the
/// order of the tokens, so runs repeat bit for bit. In training the result requires grad although ids do not:
/// autograd's graph of the stage begins here.
Tensor embedding(const Tensor& tokens, const Weight& weight);

}  // namespace athanor::ops
