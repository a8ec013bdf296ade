#pragma once
// Causal softmax attention through libtorch's flash kernel, over whole instances or document by document.

#include <vector>

#include "ops/tensor.h"

namespace athanor::ops {

/// Lengths of the documents of each sequence; they add up to its tokens. Empty: each sequence is one document.
using DocumentLengths = std::vector<std::vector<int32_t>>;

/// q [B, T, heads, head_dim]; k, v [B, T, kv_heads, head_dim] → [B, T, heads, head_dim]. A token attends to itself and
/// to the tokens before it in its document. The kernel has no form for many lengths: each document is a call of its
/// own, which also skips the work between documents.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents = {});

/// Without autograd, for generation: q [B, 1, …] attends to every row of k, v [B, past + 1, …].
Tensor attention_over_cache(const Tensor& q, const Tensor& k, const Tensor& v);

namespace portable {
/// Dense scores with a mask, in fp32.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents = {});
}  // namespace portable

}  // namespace athanor::ops
