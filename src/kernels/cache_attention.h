#pragma once
// Attention of one new token of a text over the keys and values of the tokens before it, as generation computes it. The
// query heads that share a key head are computed together, so that a key and a value are read once.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// One key head of one text.
template <class T>
struct CachedHead {
  const T *keys = nullptr, *values = nullptr;  ///< row t begins at keys + t · ld
  int64_t ld = 0;
  int64_t length = 0;  ///< number of tokens, at least 1
};

/// Computes out[g] = Σ_t softmax_t(q[g] · key_t · scale) · value_t for `group` query heads, with a soft cap of what
/// softmax gets if `soft_cap` is not 0; q and out are [group, head_dim]. All sums are fp32 in an order that depends on
/// length and head_dim alone.
/// @param sinks    [group], a further logit of each head, whose value is zero; null: there are none.
/// @param scratch  cache_attention_scratch floats.
template <class T>
void cache_attention(const CachedHead<T>& head, const T* q, T* out, int64_t group, int64_t head_dim, float scale,
                     float soft_cap, const float* sinks, float* scratch);
inline int64_t cache_attention_scratch(int64_t length, int64_t group, int64_t head_dim) {
  return group * (length + head_dim);
}

}  // namespace athanor::kernels
