#pragma once
// The embedding: token ids → rows of a table.

#include "ops/tensor.h"

namespace athanor::ops {

/// tokens [...] int64 → [..., hidden]. Backward adds each row's gradient in the order of the tokens, so runs repeat bit
/// for bit. The result requires grad although ids do not: autograd's graph of the stage begins here.
Tensor embedding(const Tensor& tokens, const Weight& weight);

}  // namespace athanor::ops
