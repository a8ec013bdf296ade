#pragma once
// Causal attention of one head over one document, on tiles (gemm_tile.h). The scores are never all in memory.
//
// Forward packs the keys and values of a head once; then each tile of 12 queries is an independent piece of work.
// Backward computes one head at a time, blocks of keys against blocks of queries, with all sums in fp32 in a fixed
// order. Attention weights are rounded to the packed type (gemm_pack.h), which is bf16 on avx512_bf16 only.

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/gemm_pack.h"

namespace athanor::kernels {

/// The rows of one head in a larger tensor, one for each token of the document: row t begins at data + t · ld and has
/// head_dim elements.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t ld = 0;

  T* row(int64_t t) const { return data + t * ld; }
};

struct AttentionShape {
  int64_t length = 0, head_dim = 0;       ///< tokens of the document; width of a head
  float scale = 1;                        ///< factor of the scores
  MatmulPath path = MatmulPath::kAvx512;  ///< any path except kLibrary
  int64_t window = 0;                     ///< keys that a query sees, its own and those before it; 0: all of them
  float soft_cap = 0;                     ///< bound of score · scale (soft_cap.h); 0: none
  float sink = -HUGE_VALF;                ///< a further logit of each query, whose value is zero; −∞: there is none
};

/// These functions pack a head's rows into panels as right factors: transposed (for scores), or as they are (for sums
/// of values). `panels` must be aligned to 64 bytes; the sizes are multiples of 64 bytes.
template <class T>
int64_t packed_transposed_bytes(const AttentionShape& shape);
template <class T>
int64_t packed_bytes(const AttentionShape& shape);
template <class T>
void pack_transposed(const AttentionShape& shape, HeadRows<const T> rows, void* panels);
template <class T>
void pack(const AttentionShape& shape, HeadRows<const T> rows, void* panels);

/// Keys and values of one head, as pack_transposed and pack write them, of `length` tokens.
struct PackedHead {
  const void *keys_transposed, *values;
  int64_t length;
};

/// Computes rows [begin, end) of `out` and of logsumexp [length], which is the logarithm of Σ exp(score · scale),
/// capped if there is a cap, over the keys that a query sees and the sink. `begin` is a multiple of 12; `end` is one
/// too, or the length.
/// @param keys_transposed, values  as pack_transposed and pack write them.
/// @param largest  [length] as logsumexp: the largest of what it is a sum of; null: not wanted.
/// @param scratch  attention_forward_scratch bytes, aligned to 64.
/// @param before  tokens before the document's, which every query sees in addition: in their order, each not empty. A
///        window has none.
template <class T>
void attention_forward(const AttentionShape& shape, HeadRows<const T> q, const void* keys_transposed,
                       const void* values, HeadRows<T> out, float* logsumexp, float* largest, int64_t begin,
                       int64_t end, void* scratch, std::span<const PackedHead> before = {});
template <class T>
int64_t attention_forward_scratch(const AttentionShape& shape);

/// The tensors of one query head in backward: `dq` is output.
template <class T>
struct AttentionQueries {
  HeadRows<const T> q, out, dout;
  const float* logsumexp;
  HeadRows<T> dq;
  float sink = -HUGE_VALF;         ///< AttentionShape::sink of this head, …
  float* sink_gradient = nullptr;  ///< … and where its gradient goes; null: there is no sink
};

/// Computes dq of each of the query heads that share one key head, and dk and dv, which are sums over these heads. All
/// three are overwritten.
/// @param scratch  attention_backward_scratch bytes, aligned to 64.
template <class T>
void attention_backward(const AttentionShape& shape, const AttentionQueries<T>* queries, int64_t num_heads,
                        HeadRows<const T> k, HeadRows<const T> v, HeadRows<T> dk, HeadRows<T> dv, void* scratch);
template <class T>
int64_t attention_backward_scratch(const AttentionShape& shape);

}  // namespace athanor::kernels
