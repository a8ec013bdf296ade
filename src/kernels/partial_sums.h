#pragma once
// Adds up a token's partial sums from the ranks that own its experts, along the tree over ranks.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Computes out[t] = Σ_p rows[row_of[t, p]] for the tokens [begin, end), with p over [0, n) along the tree of
/// comm/communicator.h: sum(lo, hi) = sum(lo, mid) + sum(mid, hi), where mid − lo is the largest power of two below
/// hi − lo. Sums are fp32, rounded once. A row_of of −1 means that rank p has nothing for the token; it counts as zero,
/// so the bits are those of a reduce-scatter to which every rank contributes. rows [·, width]; row_of [tokens, n] has
/// indices of rows; out [tokens, width].
template <class From, class To>
void sum_partials(const From* rows, const int32_t* row_of, int64_t n, To* out, int64_t begin, int64_t end,
                  int64_t width);

}  // namespace athanor::kernels
