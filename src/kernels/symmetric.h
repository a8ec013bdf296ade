#pragma once
// What Newton and Schulz's iteration does with whole matrices between its products (ops/newton_schulz.h): one pass over
// memory each, in square tiles, so that neither a matrix nor its transpose is read or written with long strides.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Sets element (j, i) of a matrix [m, m] to element (i, j), for rows i in [begin, end) and j < i.
template <class T>
void mirror(T* matrix, int64_t m, int64_t begin, int64_t end);

/// Sets elements (i, j) and (j, i) of out [m, m] to b · first(i, j) + c · second(i, j), plus a on the diagonal. It does
/// so for rows i in [begin, end) and j <= i. Sums are fp32, rounded once. `out` may be `second`, if they have the same
/// type.
template <class T, class Second>
void add_symmetric(float a, float b, const T* first, float c, const Second* second, T* out, int64_t m, int64_t begin,
                   int64_t end);

/// Sets to [rows, columns], or [columns, rows] if `transposed`, to scale · from [rows, columns], in fp32 and rounded
/// once, for rows [begin, end) of `from`.
template <class From, class To>
void convert_rows(const From* from, int64_t rows, int64_t columns, float scale, bool transposed, To* to, int64_t begin,
                  int64_t end);

}  // namespace athanor::kernels
