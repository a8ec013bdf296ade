#pragma once
// Writes a tile's fp32 sums c [12][32] to memory: the first `rows` rows and `columns` columns.

#include "kernels/gemm_tile.h"

namespace athanor::kernels {

/// Sets out[i · ld + j] = c[i][j], rounded once to nearest even.
template <class T>
void store_tile(const float* c, int64_t rows, int64_t columns, T* out, int64_t ld);

/// Computes sum[i · ld + j] += c[i][j].
void add_tile(const float* c, int64_t rows, int64_t columns, float* sum, int64_t ld);

}  // namespace athanor::kernels
