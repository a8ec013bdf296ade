#pragma once
// Counting, indexing, gather and combine of a sparse MoE layer on a device, with the results that kernels/routing.h
// defines. Source: Optimus §3.1, Algorithm 1, stages 2, 3 and 5.
//
// All pointers are in the stream's memory. T is float or Bf16. Unlike on the CPU, one call processes all rows.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

/// Returns the number of int64 elements that `workspace` of sort_choices must have.
int64_t sort_choices_workspace(int64_t tokens, int64_t num_local_experts);

/// kernels::sort_choices, in four launches. The host receives nothing: the number of rows stays on the device, at
/// offsets[num_local_experts] (ExpertRows).
void sort_choices(const Stream& stream, const int64_t* ids, int64_t tokens, int64_t k, int64_t first_local_expert,
                  int64_t num_local_experts, int64_t* offsets, int64_t* choice_of_row, int64_t* row_of_choice,
                  int64_t* workspace, int64_t row_alignment = 1);

/// The rows that sort_choices made. Kernels over rows are launched for the largest number that there can be, and
/// threads beyond the last row return at once: with experts on several ranks most rows belong to others.
struct ExpertRows {
  const int64_t* choice_of_row;
  const int64_t* num_rows;  ///< where their number is, in the stream's memory
  int64_t most_rows;        ///< elements of choice_of_row
};

/// kernels::gather_rows for all rows. What is after the last row stays as it is.
template <class T>
void gather_rows(const Stream& stream, const T* x, const ExpertRows& rows, T* out, int64_t k, int64_t width);

/// Numbers choices anew after sort_choices of tokens that were taken in another order: token i of the sort is token
/// token_of[i]. Changes choice_of_row, and sets row_of_choice of the new numbers that have a row.
void renumber_choices(const Stream& stream, const ExpertRows& rows, const int64_t* token_of, int64_t k,
                      int64_t* choice_of_row, int64_t* row_of_choice);

/// Copies each row, except padding, to row row_of_choice[its choice] of `to`.
template <class T>
void place_rows(const Stream& stream, const T* from, const ExpertRows& rows, const int64_t* row_of_choice, T* to,
                int64_t width);

/// kernels::combine_rows for tokens [0, tokens), with the same bits. If `z` is not null, y + z is combined, whose sums
/// are not rounded.
template <class T>
void combine_rows(const Stream& stream, const T* y, const T* z, const float* weights, const int64_t* row_of_choice,
                  T* out, int64_t tokens, int64_t k, int64_t width);

}  // namespace athanor::kernels::cuda
