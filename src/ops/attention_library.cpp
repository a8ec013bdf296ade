// Attention by libtorch's flash kernels: for processors without tiles of ours, and for generation.

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "ops/attention_spans.h"
#include "ops/device.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [B, T, H, D] → the span as the kernel wants it, [b, H, t, D]; a view.
Tensor cut(const Tensor& x, const Span& span) {
  return x.narrow(0, span.first_sequence, span.num_sequences).narrow(1, span.begin, span.length).transpose(1, 2);
}

Tensor repeat_kv(const Tensor& x, int64_t num_heads) {
  return x.size(2) == num_heads ? x : x.repeat_interleave(num_heads / x.size(2), 2);
}

Tensor sum_kv(const Tensor& dx, int64_t kv_heads) {
  if (dx.size(2) == kv_heads) return dx;
  return dx.view({dx.size(0), dx.size(1), kv_heads, dx.size(2) / kv_heads, dx.size(3)}).sum(3);
}

struct LibraryAttention : torch::autograd::Function<LibraryAttention> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::vector<Span>& spans) {
    const Tensor wide_k = repeat_kv(k, q.size(2)), wide_v = repeat_kv(v, q.size(2));
    Tensor out = spans.size() == 1 ? Tensor() : at::empty(q.sizes(), q.options());
    variable_list saved = {q, k, v};
    std::vector<int64_t> flat_spans;
    for (const Span& span : spans) {
      const auto [part, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          cut(q, span), cut(wide_k, span), cut(wide_v, span), /*dropout_p=*/0.0, /*is_causal=*/true);
      if (spans.size() == 1) {
        out = part.transpose(1, 2).contiguous();
      } else {
        cut(out, span).copy_(part);
      }
      saved.push_back(logsumexp);
      for (const int64_t number : {span.first_sequence, span.num_sequences, span.begin, span.length})
        flat_spans.push_back(number);
    }
    saved.push_back(out);
    ctx->save_for_backward(saved);
    ctx->saved_data["spans"] = flat_spans;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved.back(), dout = grads[0].contiguous();
    const Tensor wide_k = repeat_kv(k, q.size(2)), wide_v = repeat_kv(v, q.size(2));
    const Tensor dq = at::empty_like(q), dk = at::empty_like(wide_k), dv = at::empty_like(wide_v);
    const auto flat = ctx->saved_data["spans"].toIntVector();
    for (size_t s = 0; s * 4 < flat.size(); ++s) {
      const Span span{flat[s * 4], flat[s * 4 + 1], flat[s * 4 + 2], flat[s * 4 + 3]};
      const auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          cut(dout, span), cut(q, span), cut(wide_k, span), cut(wide_v, span), cut(out, span), saved[3 + s],
          /*dropout_p=*/0.0, /*is_causal=*/true);
      cut(dq, span).copy_(gq);
      cut(dk, span).copy_(gk);
      cut(dv, span).copy_(gv);
    }
    return {dq, sum_kv(dk, k.size(2)), sum_kv(dv, v.size(2)), Tensor()};
  }
};

}  // namespace

namespace library {

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents) {
  return LibraryAttention::apply(with_dense_heads(q), with_dense_heads(k), with_dense_heads(v),
                                 spans_of(q.size(0), q.size(1), documents));
}

}  // namespace library

Tensor attention_over_cache(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (device::takes(q)) return device::attention_over_cache(q, k, v);
  const at::NoGradGuard no_grad;
  const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      with_dense_heads(q).transpose(1, 2), with_dense_heads(repeat_kv(k, q.size(2))).transpose(1, 2),
      with_dense_heads(repeat_kv(v, q.size(2))).transpose(1, 2), 0.0, /*is_causal=*/false);
  return out.transpose(1, 2).contiguous();
}

namespace portable {

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents) {
  const int64_t seq_len = q.size(1);
  const auto heads_first = [&](const Tensor& x) { return repeat_kv(x, q.size(2)).transpose(1, 2).to(wide_type(x)); };
  Tensor allowed = at::zeros({q.size(0), 1, seq_len, seq_len}, q.options().dtype(at::kBool));
  for (const Span& span : spans_of(q.size(0), seq_len, documents)) {
    allowed.narrow(0, span.first_sequence, span.num_sequences)
        .narrow(2, span.begin, span.length)
        .narrow(3, span.begin, span.length)
        .copy_(at::ones({span.length, span.length}, allowed.options()).tril());
  }
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor scores = at::matmul(heads_first(q), heads_first(k).transpose(-1, -2)) * scale;
  const Tensor masked = scores.masked_fill(allowed.logical_not(), -std::numeric_limits<float>::infinity());
  return at::matmul(at::softmax(masked, -1), heads_first(v)).transpose(1, 2).to(q.scalar_type());
}

}  // namespace portable
}  // namespace athanor::ops
