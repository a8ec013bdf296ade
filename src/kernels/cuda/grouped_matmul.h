#pragma once
// Matrix products of groups of rows whose boundaries are known on the device only: the products of experts, for types
// and shapes that libtorch's grouped product does not take. They are made to be right and to have the same bits in each
// run; they use no tensor cores.
//
// Every result is a sum of products in fp32, each rounded and added in the order of its index, and is rounded once to
// T.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

struct GroupedShape {
  int64_t groups, rows, inner, columns;
};

/// Computes out[rows of g] = a[rows of g] · b[g] for each group g, which has rows [offsets[g], offsets[g + 1]). Rows of
/// no group are neither read nor written. a [rows, inner]; out [rows, columns]; offsets [groups + 1], the last one at
/// most `rows`.
/// @param b  [groups, inner, columns], or if `b_transposed` [groups, columns, inner].
template <class T>
void grouped_matmul(const Stream& stream, const T* a, const T* b, bool b_transposed, T* out, const int64_t* offsets,
                    const GroupedShape& shape);

/// Adds a[rows of g]ᵀ · b[rows of g] to sum[g], once; a group without rows leaves it as it is. a [rows, m]; b [rows,
/// n]; sum [groups, m, n].
template <class T>
void add_grouped_outer_product(const Stream& stream, float* sum, const T* a, const T* b, const int64_t* offsets,
                               int64_t groups, int64_t m, int64_t n);

}  // namespace athanor::kernels::cuda
