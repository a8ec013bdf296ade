// Attention by libtorch, which chooses its flash or memory-efficient kernel and brings its own autograd.

#include "ops/attention.h"

#include <ATen/ATen.h>

#include "ops/attention_spans.h"
#include "ops/device.h"

namespace athanor::ops::device {
namespace {

// [B, T, kv_heads, D] → [B, T, heads, D].
Tensor repeat_kv(const Tensor& x, int64_t num_heads) {
  return x.size(2) == num_heads ? x : x.repeat_interleave(num_heads / x.size(2), 2);
}

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal) {
  const auto heads_first = [](const Tensor& x) { return x.contiguous().transpose(1, 2); };
  return at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), {}, 0.0, is_causal)
      .transpose(1, 2);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents) {
  const auto spans = spans_of(q.size(0), q.size(1), documents);
  if (spans.empty()) return at::zeros_like(q) + (q.sum() + k.sum() + v.sum());  // zero, but part of the graph
  const Tensor wide_k = repeat_kv(k, q.size(2)), wide_v = repeat_kv(v, q.size(2));
  std::vector<Tensor> sequences, parts;
  for (const Span& span : spans) {
    const auto cut = [&](const Tensor& x) {
      return x.narrow(0, span.first_sequence, span.num_sequences).narrow(1, span.begin, span.length);
    };
    parts.push_back(attend(cut(q), cut(wide_k), cut(wide_v), /*is_causal=*/true));
    if (span.begin + span.length == q.size(1)) {
      sequences.push_back(parts.size() == 1 ? parts[0] : at::cat(parts, 1));
      parts.clear();
    }
  }
  return (sequences.size() == 1 ? sequences[0] : at::cat(sequences, 0)).contiguous();
}

Tensor attention_over_cache(const Tensor& q, const Tensor& k, const Tensor& v) {
  const at::NoGradGuard no_grad;
  return attend(q, repeat_kv(k, q.size(2)), repeat_kv(v, q.size(2)), /*is_causal=*/false).contiguous();
}

}  // namespace athanor::ops::device
