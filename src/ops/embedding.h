#pragma once
// The embedding: token ids → rows of a table.

#include "ops/tensor.h"

namespace athanor::ops {

/// tokens [...] int64, weight [V, hidden] → [..., hidden]. Backward adds each row's gradient into weight.grad in the
/// order of the tokens, so runs repeat bit for bit. In training the result requires grad although ids do not:
/// autograd's graph of the stage begins here.
Tensor embedding(const Tensor& tokens, const Weight& weight);

/// The embedding by a part of the table: ids [tokens] int64, weight [rows, hidden] → [tokens, hidden], zeros for an id
/// that is not in [0, rows). Backward is that of embedding(). The host waits for nothing.
Tensor partial_embedding(const Tensor& ids, const Weight& weight);

}  // namespace athanor::ops
