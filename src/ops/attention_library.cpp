// Attention by libtorch's flash kernels, for processors on which our tiles do not run.

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>
#include <optional>

#include "ops/attention_spans.h"
#include "ops/library_functions.h"
#include "ops/library_threads.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [B, T, H, D] → the span as the kernel expects it, [b, H, t, D]; a view.
Tensor cut(const Tensor& x, const Span& span) {
  return x.narrow(0, span.first_sequence, span.num_sequences).narrow(1, span.begin, span.length).transpose(1, 2);
}

// Queries that read the same key head are G apart from the next that do: member g of each group, [B, T, H / G, D]; a
// view. Keys are read in their own memory, once for each member, and are never repeated.
Tensor member(const Tensor& q, int64_t kv_heads, int64_t g) {
  return q.unflatten(2, {kv_heads, q.size(2) / kv_heads}).select(3, g);
}

// Key heads [first_head, first_head + heads) of a span, and member g of those that read them.
struct Call {
  Span span;
  int64_t g, first_head, heads;

  Tensor of_keys(const Tensor& k) const { return cut(k.narrow(2, first_head, heads), span); }
  Tensor of_queries(const Tensor& q, int64_t kv_heads) const { return of_keys(member(q, kv_heads, g)); }
};

// Returns a call for each thread that is free, with one key head each, unless a head has too little work to be worth a
// call.
std::vector<Call> calls_of(const std::vector<Span>& spans, const Tensor& q, int64_t kv_heads) {
  constexpr int64_t kWork = int64_t{1} << 20;
  std::vector<Call> calls;
  for (const Span& span : spans) {
    const int64_t work = span.num_sequences * span.length * span.length * q.size(3);
    const int64_t heads = work >= kWork ? 1 : kv_heads;
    for (int64_t g = 0; g < q.size(2) / kv_heads; ++g) {
      for (int64_t head = 0; head < kv_heads; head += heads) calls.push_back({span, g, head, heads});
    }
  }
  return calls;
}

template <class F>
void for_each_call(const std::vector<Call>& calls, F f) {
  library::for_each_single_threaded(static_cast<int64_t>(calls.size()),
                                    [&](int64_t i) { f(calls[static_cast<size_t>(i)], static_cast<size_t>(i)); });
}

// What libtorch's kernel adds to the scores: nothing if it need only be causal, else 0 or −∞, [length, length].
std::optional<Tensor> mask_of(const Tensor& q, const Span& span, const AttentionOptions& options) {
  if (options.window == 0 || options.window >= span.length) return std::nullopt;
  const Tensor seen = seen_in_span(span.length, options, q.device());
  return at::zeros(seen.sizes(), q.options()).masked_fill_(seen.logical_not(), -std::numeric_limits<float>::infinity());
}

struct LibraryAttention : torch::autograd::Function<LibraryAttention> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::vector<Span>& spans, const AttentionOptions& options) {
    const int64_t kv_heads = k.size(2);
    const Tensor out = at::empty(q.sizes(), q.options());
    const auto calls = calls_of(spans, q, kv_heads);
    variable_list saved = {q, k, v, out};
    saved.resize(4 + calls.size());
    for_each_call(calls, [&](const Call& call, size_t i) {
      const auto mask = mask_of(q, call.span, options);
      const auto [part, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          call.of_queries(q, kv_heads), call.of_keys(k), call.of_keys(v), /*dropout_p=*/0.0, /*is_causal=*/!mask, mask,
          options.given_scale());
      call.of_queries(out, kv_heads).copy_(part);
      saved[4 + i] = logsumexp;
    });
    ctx->save_for_backward(saved);
    ctx->saved_data["spans"] = numbers_of(spans);
    ctx->saved_data["options"] = numbers_of(options);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], dout = grads[0].contiguous();
    const int64_t kv_heads = k.size(2), members = q.size(2) / kv_heads;
    const auto spans = spans_of(ctx->saved_data["spans"].toIntVector());
    const Tensor dq = at::empty_like(q);
    // A gradient for each member; those of a key are added afterwards, in their order.
    auto shape = k.sizes().vec();
    shape.insert(shape.begin(), members);
    const Tensor dk = at::empty(shape, k.options()), dv = at::empty(shape, v.options());
    const AttentionOptions options = options_of(ctx->saved_data["options"]);
    for_each_call(calls_of(spans, q, kv_heads), [&](const Call& call, size_t i) {
      const auto mask = mask_of(q, call.span, options);
      const auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          call.of_queries(dout, kv_heads), call.of_queries(q, kv_heads), call.of_keys(k), call.of_keys(v),
          call.of_queries(out, kv_heads), saved[4 + i], /*dropout_p=*/0.0, /*is_causal=*/!mask, mask,
          options.given_scale());
      call.of_queries(dq, kv_heads).copy_(gq);
      call.of_keys(dk[call.g]).copy_(gk);
      call.of_keys(dv[call.g]).copy_(gv);
    });
    const auto added = [&](const Tensor& x) { return members == 1 ? x[0] : x.sum(0); };
    return {dq, added(dk), added(dv), Tensor(), Tensor()};
  }
};

}  // namespace

namespace library {

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents,
                 const AttentionOptions& options) {
  const auto in_steps = [documents](const auto& queries, const auto& keys, const auto& of_values, const auto& with) {
    return portable::attention(queries, keys, of_values, documents, with);
  };
  if (options.sinks.defined()) return attend_with_sinks(q, k, v, options, in_steps);
  if (options.needs_steps()) return in_steps(q, k, v, options);
  return LibraryAttention::apply(with_dense_heads(q), with_dense_heads(k), with_dense_heads(v),
                                 spans_of(q.size(0), q.size(1), documents), options);
}

}  // namespace library

Tensor attention_in_steps(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& seen,
                          const AttentionOptions& options) {
  const auto wide = [](const Tensor& x) { return x.to(wide_type(x)); };
  start_library_functions();
  Tensor logits = at::matmul(wide(q), wide(k).transpose(-1, -2)) * options.scale_of(q);
  if (options.soft_cap > 0) logits = (logits / options.soft_cap).tanh() * options.soft_cap;
  logits = logits.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  if (!options.sinks.defined()) return at::matmul(at::softmax(logits, -1), wide(v)).to(q.scalar_type());
  auto shape = logits.sizes().vec();
  shape.back() = 1;
  const Tensor sinks = wide(options.sinks.value).view({q.size(-3), -1, 1}).expand(shape);
  const Tensor weights = at::softmax(at::cat({logits, sinks.to(logits.scalar_type())}, -1), -1);
  return at::matmul(weights.narrow(-1, 0, logits.size(-1)), wide(v)).to(q.scalar_type());
}

namespace portable {

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents,
                 const AttentionOptions& options) {
  const int64_t seq_len = q.size(1);
  const auto heads_first = [&](const Tensor& x) {
    return x.repeat_interleave(q.size(2) / x.size(2), 2).transpose(1, 2);
  };
  Tensor allowed = at::zeros({q.size(0), 1, seq_len, seq_len}, q.options().dtype(at::kBool));
  for (const Span& span : spans_of(q.size(0), seq_len, documents)) {
    allowed.narrow(0, span.first_sequence, span.num_sequences)
        .narrow(2, span.begin, span.length)
        .narrow(3, span.begin, span.length)
        .copy_(seen_in_span(span.length, options, q.device()));
  }
  return attention_in_steps(heads_first(q), heads_first(k), heads_first(v), allowed, options).transpose(1, 2);
}

}  // namespace portable
}  // namespace athanor::ops
