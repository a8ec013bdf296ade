#pragma once
// Attention in fp64 with the rounding errors that our kernels and the library's may make, for any mask.
// Shapes: B sequences, T tokens, H heads, D of each head.

#include <cmath>

#include "ops/attention.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::test {

// [B, T, H, D] → [B, H, T, D], each key head repeated for its queries.
inline Tracked heads_first(const Tensor& x, int64_t num_heads) {
  return exact(x.repeat_interleave(num_heads / x.size(2), 2).transpose(1, 2));
}
inline Tracked swapped(const Tracked& a, int64_t dim0, int64_t dim1) {
  return a.view([&](const Tensor& t) { return t.transpose(dim0, dim1); });
}

// The library adds the products of one block of tokens after the other into a result of the compute type; its smallest
// block has 32 tokens.
inline Tracked blocked_matmul(const Tracked& a, const Tracked& b, at::ScalarType dtype) {
  const Tracked product = matmul(a, b);
  const auto blocks = static_cast<double>((a.value.size(-1) + 31) / 32);
  const Tensor norm = at::matmul(a.largest(), b.largest());
  return {product.value, stored(product, dtype).error + (blocks - 1) * unit_roundoff(dtype) * norm};
}

struct AttentionReference {
  Tracked y, dq, dk, dv;
  Tracked dsinks;  // [heads], if there are sinks
};

// The parts of the forward pass that gradients need too; y is [B, H, T, D].
struct AttentionForward {
  Tracked q, k, v, mask, logits, peak, total, y;
  Tracked slope;  // the derivative of the logits by the products of q and k
  Tracked sinks;  // [B, H, T, 1], if there are sinks
};

constexpr int64_t kExpUlps = 20;  // error of the library's exponential in these kernels (its name is exp_u20)

inline AttentionForward attention_forward(const Tensor& in_q, const Tensor& in_k, const Tensor& in_v,
                                          const Tensor& in_mask, const AttentionOptions& options = {}) {
  const at::ScalarType dtype = in_q.scalar_type();
  const int64_t heads = in_q.size(2);
  const Tracked q = heads_first(in_q, heads), k = heads_first(in_k, heads), v = heads_first(in_v, heads);
  const Tracked mask = exact(in_mask);
  const double scale = options.scale_of(in_q), cap = options.soft_cap;

  const Tracked scores = matmul(q, swapped(k, -1, -2)) * scale, logits = soft_cap(scores, cap);
  const Tracked tanh = logits * (cap > 0 ? 1 / cap : 0), slope = (exact(1.0) - tanh * tanh) * scale;
  Tensor largest = logits.value.masked_fill(mask.value == 0, -1e300).amax(-1, /*keepdim=*/true);
  Tracked sinks;
  if (options.sinks.defined()) {
    sinks = exact(options.sinks.value.view({-1, 1, 1}).expand(largest.sizes()));
    largest = at::maximum(largest, sinks.value);
  }
  const Tracked peak = exact(largest), e = exp(logits - peak, kExpUlps) * mask;
  Tracked total = sum(e, -1, /*keepdim=*/true);
  if (options.sinks.defined()) total = total + exp(sinks - peak, kExpUlps);
  const Tracked y = stored(blocked_matmul(stored(e, dtype), v, at::kFloat) * reciprocal(total), dtype);
  return {q, k, v, mask, logits, peak, total, y, slope, sinks};
}

// @param mask  [B, 1, T, T] fp64: 1 where a token (third dim) attends to another (last dim).
inline AttentionReference attention_reference(const Tensor& in_q, const Tensor& in_k, const Tensor& in_v,
                                              const Tensor& in_dy, const Tensor& in_mask,
                                              const AttentionOptions& options = {}) {
  const at::ScalarType dtype = in_q.scalar_type();
  const int64_t heads = in_q.size(2), kv_heads = in_k.size(2);
  const auto [q, k, v, mask, logits, peak, total, y, slope, sinks] =
      attention_forward(in_q, in_k, in_v, in_mask, options);
  const Tracked dy = heads_first(in_dy, heads);

  const Tracked logsumexp = peak + log(total), p = exp(logits - logsumexp, kExpUlps) * mask;
  const Tracked dv = blocked_matmul(swapped(stored(p, dtype), -1, -2), dy, dtype);
  const Tracked dp = matmul(dy, swapped(v, -1, -2)), row = sum(dy * y, -1, /*keepdim=*/true);
  const Tracked ds = stored(p * (dp - row) * slope, dtype);
  const Tracked dq = blocked_matmul(ds, k, dtype), dk = blocked_matmul(swapped(ds, -1, -2), q, dtype);

  const auto to_kv_heads = [&](const Tracked& x) {  // [B, H, T, D] → [B, T, kv, D]
    const Tracked grouped = swapped(x, 1, 2).view([&](const Tensor& t) {
      return t.reshape({in_q.size(0), in_q.size(1), kv_heads, heads / kv_heads, in_q.size(3)});
    });
    return stored(sum(grouped, 3), dtype);
  };
  Tracked dsinks;
  if (options.sinks.defined()) {
    const Tracked terms = exp(sinks - logsumexp, kExpUlps) * row * -1;  // [B, H, T, 1]
    dsinks = sum(terms.view([&](const Tensor& t) { return t.transpose(0, 1).reshape({heads, -1}); }), 1);
  }
  return {swapped(y, 1, 2), swapped(dq, 1, 2), to_kv_heads(dk), to_kv_heads(dv), dsinks};
}

}  // namespace athanor::ops::test
