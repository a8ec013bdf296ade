// Attention by libtorch's kernels: over all documents in one call where it has them, else document by document.

#include "ops/attention.h"

#include <ATen/ATen.h>

#include <optional>

#include "ops/attention_spans.h"
#include "ops/device.h"
#include "ops/device/library_attention.h"
#include "ops/document_tables.h"
#include "ops/graph.h"
#include "ops/transfer.h"

namespace athanor::ops::device {
namespace {

// libtorch's attention; with a soft cap or sinks, which none of its kernels has, in single steps. q, k and v are [B,
// heads, T, D]. @param seen  bool; none: causal.
Tensor attend_heads_first(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& seen,
                          const AttentionOptions& options) {
  if (options.needs_steps())
    return attention_in_steps(q, k, v, seen ? *seen : seen_in_span(q.size(2), {}, q.device()), options);
  return at::scaled_dot_product_attention(q, k, v, seen, 0.0, /*is_causal=*/!seen, options.given_scale());
}

// [B, T, heads, D] → [B, T, heads, D], of tokens that attend among themselves.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const auto heads_first = [](const Tensor& x) { return with_dense_heads(x).transpose(1, 2); };
  std::optional<Tensor> seen;
  if (options.window > 0 && options.window < q.size(1)) seen = seen_in_span(q.size(1), options, q.device());
  return attend_heads_first(heads_first(q), heads_first(k), heads_first(v), seen, options).transpose(1, 2);
}

// Returns the number of sequences from `first` on that have the lengths of the first.
int64_t count_equal(const DocumentLengths& documents, size_t first) {
  size_t end = first + 1;
  while (end < documents.size() && documents[end] == documents[first]) ++end;
  return static_cast<int64_t>(end - first);
}

Tensor attention_by_spans(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents,
                          const AttentionOptions& options) {
  const auto repeated = [&](const Tensor& x) {
    return x.size(2) == q.size(2) ? x : x.repeat_interleave(q.size(2) / x.size(2), 2);
  };
  const Tensor wide_k = repeated(k), wide_v = repeated(v);
  if (documents.empty()) return attend(q, wide_k, wide_v, options).contiguous();
  std::vector<Tensor> sequences;
  for (int64_t b = 0; b < q.size(0);) {
    const int64_t count = count_equal(documents, static_cast<size_t>(b));
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (const int32_t length : documents[static_cast<size_t>(b)]) {
      if (length == 0) continue;
      const auto cut = [&](const Tensor& x) { return x.narrow(0, b, count).narrow(1, begin, length); };
      parts.push_back(attend(cut(q), cut(wide_k), cut(wide_v), options));
      begin += length;
    }
    sequences.push_back(parts.size() == 1 ? parts[0] : at::cat(parts, 1));
    b += count;
  }
  return (sequences.size() == 1 ? sequences[0] : at::cat(sequences, 0)).contiguous();
}

// Returns the number of documents that a kernel gets, with the empty ones of the tables.
int64_t num_documents(const Tensor& q, const DocumentLengths& documents) {
  if (documents.empty()) return q.size(0);
  const Tensor& offsets = documents.tables.offsets;
  return offsets.defined() ? offsets.numel() - 1 : document_room(documents, q.size(1)) + 1;
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents,
                 const AttentionOptions& options) {
  if (q.numel() == 0) return at::zeros_like(q) + (q.sum() + k.sum() + v.sum());  // empty, but part of the graph
  if (!documents.empty()) check_documents(documents, q.size(0), q.size(1));
  const auto form = attention_form(q.scalar_type(), q.size(3), num_documents(q, documents), options,
                                   [&](AttentionForm wanted) { return runs_here(wanted, q); });
  if (form == AttentionForm::kSpans) {
    // The lengths of documents would become part of the graph.
    ATHANOR_CHECK_AS(Error, documents.empty() || !Graph::is_recording(),
                     "attention document by document while a graph is recorded");
    const auto by_spans = [documents](const auto& queries, const auto& keys, const auto& of_values, const auto& with) {
      return attention_by_spans(queries, keys, of_values, documents, with);
    };
    return options.sinks.defined() ? attend_with_sinks(q, k, v, options, by_spans) : by_spans(q, k, v, options);
  }
  const Tensor offsets = with_tables(documents, q.size(1), q.device()).tables.offsets;
  return form == AttentionForm::kFlash ? flash_attention(q, k, v, offsets, options)
                                       : efficient_attention(q, k, v, offsets, options);
}

// The query heads that read one key head are taken as its queries, so that no kernel gets a key twice.
Tensor cache_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyCounts& counts,
                       const AttentionOptions& options) {
  const at::NoGradGuard no_grad;
  if (q.numel() == 0) return at::empty_like(q);
  const Tensor seen = counts.seen.defined()
                          ? counts.seen
                          : keys_seen(send(at::tensor(counts.of_row) - 1, q.device()), counts.most(), counts.window);
  const int64_t rows = q.size(0), kv_heads = k.size(2), group = q.size(1) / kv_heads, most = counts.most();
  const auto heads_first = [&](const Tensor& x) { return x.narrow(0, 0, rows).narrow(1, 0, most).transpose(1, 2); };
  const Tensor queries = q.contiguous().view({rows, kv_heads, group, q.size(2)});
  return attend_heads_first(queries, heads_first(k), heads_first(v), seen, options).reshape(q.sizes());
}

}  // namespace athanor::ops::device
