#include "kernels/gemm_store.h"

namespace athanor::kernels {
namespace {

// The compiler knows the length of whole rows.
template <class Row>
ATHANOR_INLINE void for_each_row(int64_t rows, int64_t columns, Row row) {
  for (int64_t i = 0; i < rows; ++i) {
    if (columns == kTileColumns) {
      for (int64_t j = 0; j < kTileColumns; ++j) row(i, j);
    } else {
      for (int64_t j = 0; j < columns; ++j) row(i, j);
    }
  }
}

template <class T>
ATHANOR_INLINE void store_rows(const float* __restrict c, int64_t rows, int64_t columns, T* __restrict out,
                               int64_t ld) {
  for_each_row(rows, columns, [=](int64_t i, int64_t j) { store(out[i * ld + j], c[i * kTileColumns + j]); });
}

}  // namespace

template <>
ATHANOR_EACH_ISA void store_tile<float>(const float* c, int64_t rows, int64_t columns, float* out, int64_t ld) {
  store_rows(c, rows, columns, out, ld);
}
template <>
ATHANOR_EACH_ISA void store_tile<Bf16>(const float* c, int64_t rows, int64_t columns, Bf16* out, int64_t ld) {
  store_rows(c, rows, columns, out, ld);
}

ATHANOR_EACH_ISA void add_tile(const float* c, int64_t rows, int64_t columns, float* sum, int64_t ld) {
  for_each_row(rows, columns, [=](int64_t i, int64_t j) { sum[i * ld + j] += c[i * kTileColumns + j]; });
}

}  // namespace athanor::kernels
