#pragma once
// The index work of a sparse MoE layer: which expert gets which token, and the sum back.
// Source: Optimus §3.1, Algorithm 1, stages 2, 3 and 5, for one process.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// The k largest of each row, largest first; equal scores go to the lower index, on every device.
/// scores [rows, width] without NaN; ids [rows, k].
void top_k(const float* scores, int64_t* ids, int64_t rows, int64_t width, int64_t k);

/// Sorts the choices by local expert, within an expert by token. ids [tokens, k], those outside
/// [first_local_expert, first_local_expert + num_local_experts) are ignored.
/// offsets [num_local_experts + 1]: where each expert's rows begin; the last one is the number of rows in all. An
/// expert with choices gets a multiple of `row_alignment` rows, the last of them padding; one without gets none.
/// choice_of_row [max_rows(…)]: the index t·k + j, −1 for padding. row_of_choice [tokens·k]: the inverse, −1 where
/// ignored.
void sort_choices(const int64_t* ids, int64_t tokens, int64_t k, int64_t first_local_expert, int64_t num_local_experts,
                  int64_t* offsets, int64_t* choice_of_row, int64_t* row_of_choice, int64_t row_alignment = 1);

/// The most rows that sort_choices can make.
inline int64_t max_rows(int64_t tokens, int64_t k, int64_t num_local_experts, int64_t row_alignment) {
  return tokens * k + num_local_experts * (row_alignment - 1);
}

/// out[r] = x[choice_of_row[r] / k] for rows [begin, end), zeros for padding. x [tokens, width].
template <class T>
void gather_rows(const T* x, const int64_t* choice_of_row, T* out, int64_t begin, int64_t end, int64_t k,
                 int64_t width);

/// out[t] = Σ_j weights[t, j] · y[row_of_choice[t, j]], j ascending, fp32 inside; tokens [begin, end).
/// `weights` may be null: a plain sum (the backward of gather).
template <class T>
void combine_rows(const T* y, const float* weights, const int64_t* row_of_choice, T* out, int64_t begin, int64_t end,
                  int64_t k, int64_t width);

}  // namespace athanor::kernels
