#pragma once
// Packing of whole panels and blocks for each instruction set. gemm_pack.cpp chooses among these functions and packs
// the edges. Operands, strides and results are those of gemm_pack.h; `pairs` counts pairs of k, and a word is one step.
// Only on x86-64.

#include "kernels/gemm_pack.h"

namespace athanor::kernels {

namespace avx512 {

/// Pack rows of 32 columns into a panel.
void rows_to_panel(const Bf16* b, int64_t ld, int64_t pairs, Bf16* panel);
void rows_to_panel(const float* b, int64_t ld, int64_t rows, float* panel);

/// Packs 32 rows of `steps` words into a panel, in whole blocks of 16 words. Returns the number of steps packed.
template <class T>
int64_t columns_to_panel(const T* b, int64_t ld, int64_t steps, T* panel);

/// Pack rows of up to 12 columns into a block.
void rows_to_block(const Bf16* a, int64_t ld, int64_t pairs, int64_t columns, Bf16* block);
void rows_to_block(const float* a, int64_t ld, int64_t rows, int64_t columns, float* block);

}  // namespace avx512

namespace avx2 {

// T is float, or Bf16, which is widened to float.

/// Packs rows of 32 columns.
template <class T>
void rows_to_panel(const T* b, int64_t ld, int64_t rows, float* panel);

/// Pack 32 or `rows` <= 12 rows with contiguous k, in whole groups of 8 k. They return the number of k packed.
template <class T>
int64_t columns_to_panel(const T* b, int64_t ld, int64_t k, float* panel);
template <class T>
int64_t columns_to_block(const T* a, int64_t ld, int64_t k, int64_t rows, float* block);

/// Packs 12 columns of each row; all 12 must be readable.
template <class T>
void rows_to_block(const T* a, int64_t ld, int64_t rows, float* block);

}  // namespace avx2
}  // namespace athanor::kernels
