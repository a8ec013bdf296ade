#pragma once
// Operands of a product as gemm_tile.h reads them. What is beyond the matrix is zero. A step is 2 bf16 or 1 float.
//
// P is what is packed of a T: the same, or float of bf16 (widened, exactly).

#include <cstdint>

#include "kernels/gemm_tile.h"

namespace athanor::kernels {

/// f(P*): what is packed of a T on a path.
template <class T, class F>
auto with_packed(MatmulPath path, F f) {
  return path == MatmulPath::kAvx512Bf16 ? f(static_cast<T*>(nullptr)) : f(static_cast<float*>(nullptr));
}

/// Steps that cover k values.
template <class P>
constexpr int64_t steps_of(int64_t k) {
  return (k + kStep<P> - 1) / kStep<P>;
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class P>
constexpr int64_t panel_elements(int64_t k) {
  return steps_of<P>(k) * kStep<P> * kTileColumns;
}

/// panel [steps][32] of columns [0, columns <= 32) of b, where element (k, n) is b[k · ld + n].
template <class T, class P>
void pack_panel(MatmulPath path, const T* b, int64_t ld, int64_t k, int64_t columns, P* panel);

/// The same where element (k, n) is b[n · ld + k]: the panel of a transposed matrix.
template <class T, class P>
void pack_panel_transposed(MatmulPath path, const T* b, int64_t ld, int64_t k, int64_t columns, P* panel);

/// What pack_rows_transposed may write behind a block.
constexpr int64_t kBlockSlackBytes = 64;

/// block [steps][12] of rows [0, rows <= 12) of A, where element (m, k) is a[k · ld + m]; what is beyond `rows` may be
/// anything.
/// @param readable  rows that A has from here on, at least `rows`.
template <class T, class P>
void pack_rows_transposed(MatmulPath path, const T* a, int64_t ld, int64_t k, int64_t rows, int64_t readable, P* block);

/// The same where element (m, k) is a[m · ld + k].
template <class T, class P>
void pack_rows(MatmulPath path, const T* a, int64_t ld, int64_t k, int64_t rows, P* block);

}  // namespace athanor::kernels
