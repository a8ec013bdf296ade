#pragma once
// Packs the operands of a product into the form that gemm_tile.h reads. A step is 2 bf16 or 1 float, and steps beyond
// the last k are filled with zeros. A panel has 32 columns of B: element (k, n) is at (k / kStep · 32 + n) · kStep +
// k % kStep, and columns beyond the matrix are zero. A block has 12 rows of A in the same form.
//
// P is the packed type of a T: T itself, or float for a bf16 (widened exactly).

#include <cstdint>

#include "kernels/gemm_tile.h"

namespace athanor::kernels {

/// Calls f with a null pointer of type P*, where P is the packed type of T on this path.
template <class T, class F>
auto with_packed(MatmulPath path, F f) {
  return path == MatmulPath::kAvx512Bf16 ? f(static_cast<T*>(nullptr)) : f(static_cast<float*>(nullptr));
}

/// Returns the number of steps that cover k values.
template <class P>
constexpr int64_t steps_of(int64_t k) {
  return (k + kStep<P> - 1) / kStep<P>;
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class P>
constexpr int64_t panel_elements(int64_t k) {
  return steps_of<P>(k) * kStep<P> * kTileColumns;
}

/// Writes the panel [steps][32] of columns [0, columns <= 32) of b, whose element (k, n) is b[k · ld + n].
template <class T, class P>
void pack_panel(MatmulPath path, const T* b, int64_t ld, int64_t k, int64_t columns, P* panel);

/// As pack_panel for a transposed matrix, whose element (k, n) is b[n · ld + k].
template <class T, class P>
void pack_panel_transposed(MatmulPath path, const T* b, int64_t ld, int64_t k, int64_t columns, P* panel);

/// Bytes that pack_rows_transposed may write after the end of a block.
constexpr int64_t kBlockSlackBytes = 64;

/// Writes the block [steps][12] of rows [0, rows <= 12) of A, whose element (m, k) is a[k · ld + m]. Elements of the
/// block beyond `rows` are unspecified.
/// @param readable  number of rows that A has from here on, at least `rows`.
template <class T, class P>
void pack_rows_transposed(MatmulPath path, const T* a, int64_t ld, int64_t k, int64_t rows, int64_t readable, P* block);

/// As pack_rows_transposed for an A whose element (m, k) is a[m · ld + k].
template <class T, class P>
void pack_rows(MatmulPath path, const T* a, int64_t ld, int64_t k, int64_t rows, P* block);

}  // namespace athanor::kernels
