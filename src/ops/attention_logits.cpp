#include "ops/attention_logits.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "ops/attention_spans.h"

namespace athanor::ops {
namespace {

constexpr int64_t kBlockRows = 64;  // queries at once

// q [kv_heads, heads of each, L, d], k [kv_heads, L, d] of tokens that attend among themselves → [heads].
Tensor largest_of_run(const Tensor& q, const Tensor& k) {
  const int64_t length = k.size(1), dim = k.size(2);
  Tensor largest;
  for (int64_t row = 0; row < length; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, length - row), seen = row + rows;
    const Tensor block = q.narrow(2, row, rows).reshape({q.size(0), -1, dim});
    const Tensor logits =
        at::matmul(block, k.narrow(1, 0, seen).transpose(1, 2)).view({q.size(0), q.size(1), rows, seen});
    const Tensor later = at::ones({rows, seen}, logits.options().dtype(at::kBool)).triu(row + 1);
    const Tensor here = logits.masked_fill_(later, -std::numeric_limits<float>::infinity()).amax({2, 3});
    largest = largest.defined() ? at::maximum(largest, here) : here;
  }
  return largest.reshape({-1});
}

}  // namespace

Tensor largest_attention_logits(const Tensor& q, const Tensor& k, const DocumentLengths& documents) {
  const at::NoGradGuard no_grad;
  const int64_t batch = q.size(0), heads = q.size(2), kv_heads = k.size(2), dim = q.size(3);
  Tensor largest = at::full({batch, heads}, -std::numeric_limits<float>::infinity(), q.options().dtype(at::kFloat));
  for (const Span& span : spans_of(batch, q.size(1), documents)) {
    for (int64_t b = span.first_sequence; b < span.first_sequence + span.num_sequences; ++b) {
      const Tensor keys = k[b].narrow(0, span.begin, span.length).transpose(0, 1).to(at::kFloat);
      const Tensor queries = q[b].narrow(0, span.begin, span.length).transpose(0, 1).to(at::kFloat);
      const Tensor here = largest_of_run(queries.reshape({kv_heads, heads / kv_heads, span.length, dim}), keys);
      largest[b].copy_(at::maximum(largest[b], here));
    }
  }
  return largest.div_(std::sqrt(static_cast<double>(dim)));
}

}  // namespace athanor::ops
