#pragma once
// Counting, indexing, gather and combine of a sparse MoE layer on a device; results as kernels/routing.h defines them.
// Source: Optimus §3.1, Algorithm 1, stages 2, 3 and 5.
//
// All pointers are of the stream's memory. T is float or Bf16. Rows are whole: a stream needs no [begin, end).

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

/// kernels::top_k, ties to the lower index.
void top_k(const Stream& stream, const float* scores, int64_t* ids, int64_t rows, int64_t width, int64_t k);

/// counts[s · num_experts + e]: how often group s of ids, `per_group` of them, names expert e. ids outside
/// [0, num_experts) are not counted.
void count_choices(const Stream& stream, const int64_t* ids, int64_t groups, int64_t per_group, int64_t num_experts,
                   int64_t* counts);

/// int64 elements of `workspace` below.
int64_t sort_choices_workspace(int64_t tokens, int64_t k, int64_t num_local_experts);

/// kernels::sort_choices; all max_rows(…) elements of choice_of_row are written, −1 after the last row. Nothing of it
/// reaches the host: callers work on max_rows rows and need not wait for the number.
void sort_choices(const Stream& stream, const int64_t* ids, int64_t tokens, int64_t k, int64_t first_local_expert,
                  int64_t num_local_experts, int64_t* offsets, int64_t* choice_of_row, int64_t* row_of_choice,
                  int64_t* workspace, int64_t row_alignment = 1);

/// kernels::gather_rows for rows [0, rows).
template <class T>
void gather_rows(const Stream& stream, const T* x, const int64_t* choice_of_row, T* out, int64_t rows, int64_t k,
                 int64_t width);

/// kernels::combine_rows for tokens [0, tokens), the same bits.
template <class T>
void combine_rows(const Stream& stream, const T* y, const float* weights, const int64_t* row_of_choice, T* out,
                  int64_t tokens, int64_t k, int64_t width);

}  // namespace athanor::kernels::cuda
