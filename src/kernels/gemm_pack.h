#pragma once
// Operands of a product as gemm_tile.h reads them. What is beyond the matrix is zero. A step is 2 bf16 or 1 float.

#include <cstdint>

#include "kernels/gemm_tile.h"

namespace athanor::kernels {

/// Steps that cover k values.
template <class T>
constexpr int64_t steps_of(int64_t k) {
  return (k + kStep<T> - 1) / kStep<T>;
}

/// panel [steps][32] of columns [0, columns <= 32) of b, where element (k, n) is b[k · ld + n].
template <class T>
void pack_panel(const T* b, int64_t ld, int64_t k, int64_t columns, T* panel);

/// The same where element (k, n) is b[n · ld + k]: the panel of a transposed matrix.
template <class T>
void pack_panel_transposed(const T* b, int64_t ld, int64_t k, int64_t columns, T* panel);

/// What pack_rows_transposed may write behind a block.
constexpr int64_t kBlockSlackBytes = 64;

/// block [steps][12] of rows [0, rows <= 12) of A, where element (m, k) is a[k · ld + m].
template <class T>
void pack_rows_transposed(const T* a, int64_t ld, int64_t k, int64_t rows, T* block);

}  // namespace athanor::kernels
