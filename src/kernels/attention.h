#pragma once
// Causal attention of one head over one document, on tiles (gemm_tile.h): scores are never all in memory.
//
// Forward packs the keys and values of a head once; then each tile of 12 queries is a piece of work by itself. Backward
// does a head at a time, blocks of keys against blocks of queries, all sums in fp32 in a fixed order. Weights are
// rounded to what is packed (gemm_pack.h): to bf16 on avx512_bf16 only.

#include <cstdint>

#include "kernels/gemm_pack.h"

namespace athanor::kernels {

/// Rows of one head in a larger tensor: row t begins at data + t · ld and has head_dim elements.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t ld = 0;

  T* row(int64_t t) const { return data + t * ld; }
};

struct AttentionShape {
  int64_t length = 0, head_dim = 0;
  float scale = 1;                        ///< of scores
  MatmulPath path = MatmulPath::kAvx512;  ///< any but the library's
};

/// Panels of a head's rows as right factors: of their transpose (scores), and as they are (sums of values). Memory
/// aligned to 64 bytes; bytes are multiples of that.
template <class T>
int64_t packed_transposed_bytes(const AttentionShape& shape);
template <class T>
int64_t packed_bytes(const AttentionShape& shape);
template <class T>
void pack_transposed(const AttentionShape& shape, HeadRows<const T> rows, void* panels);
template <class T>
void pack(const AttentionShape& shape, HeadRows<const T> rows, void* panels);

/// out and logsumexp [length] of queries [begin, end); begin a multiple of 12, end too or the length.
/// @param scratch  attention_forward_scratch bytes, aligned to 64.
template <class T>
void attention_forward(const AttentionShape& shape, HeadRows<const T> q, const void* keys_transposed,
                       const void* values, HeadRows<T> out, float* logsumexp, int64_t begin, int64_t end,
                       void* scratch);
template <class T>
int64_t attention_forward_scratch(const AttentionShape& shape);

template <class T>
struct AttentionQueries {
  HeadRows<const T> q, out, dout;
  const float* logsumexp;
  HeadRows<T> dq;
};

/// dq of each head of `queries`, and dk, dv, the sums over them.
/// @param scratch  attention_backward_scratch bytes, aligned to 64.
template <class T>
void attention_backward(const AttentionShape& shape, const AttentionQueries<T>* queries, int64_t num_heads,
                        HeadRows<const T> k, HeadRows<const T> v, HeadRows<T> dk, HeadRows<T> dv, void* scratch);
template <class T>
int64_t attention_backward_scratch(const AttentionShape& shape);

}  // namespace athanor::kernels
