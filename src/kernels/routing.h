#pragma once
// The index operations of a sparse MoE layer: they assign tokens to experts, gather their rows, and sum the results.
// Source: Optimus §3.1, Algorithm 1, stages 2, 3 and 5, for one process.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Finds the k largest scores of each row, largest first; of equal scores the lower index wins, on every device.
/// scores [rows, width] without NaN; ids [rows, k].
void top_k(const float* scores, int64_t* ids, int64_t rows, int64_t width, int64_t k);

/// Sorts the choices by local expert, and within an expert by token.
/// @param ids            [tokens, k]; ids outside [first_local_expert, first_local_expert + num_local_experts) are
///                       ignored.
/// @param offsets        [num_local_experts + 1]: the first row of each expert, then the total number of rows. An
///                       expert with choices gets a multiple of `row_alignment` rows, with padding at the end; an
///                       expert without choices gets none.
/// @param choice_of_row  [max_rows(…)]: the index t·k + j of choice j of token t, or −1 for padding. Elements after the
///                       last row are not written.
/// @param row_of_choice  [tokens·k]: the inverse, or −1 for an ignored choice.
void sort_choices(const int64_t* ids, int64_t tokens, int64_t k, int64_t first_local_expert, int64_t num_local_experts,
                  int64_t* offsets, int64_t* choice_of_row, int64_t* row_of_choice, int64_t row_alignment = 1);

/// Returns the largest number of rows that sort_choices can make.
inline int64_t max_rows(int64_t tokens, int64_t k, int64_t num_local_experts, int64_t row_alignment) {
  return tokens * k + num_local_experts * (row_alignment - 1);
}

/// Computes out[r] = x[choice_of_row[r] / k] for the rows [begin, end), or zeros for padding. x [tokens, width].
template <class T>
void gather_rows(const T* x, const int64_t* choice_of_row, T* out, int64_t begin, int64_t end, int64_t k,
                 int64_t width);

/// Computes out[t] = Σ_j weights[t, j] · y[row_of_choice[t, j]] for the tokens [begin, end), over ascending j in fp32.
/// Choices with a row of −1 count as zero. If `weights` is null, it is a plain sum (the backward of gather_rows).
template <class T>
void combine_rows(const T* y, const float* weights, const int64_t* row_of_choice, T* out, int64_t begin, int64_t end,
                  int64_t k, int64_t width);

}  // namespace athanor::kernels
