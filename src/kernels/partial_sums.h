#pragma once
// A token's output over the ranks that own its experts: partial sums added along the tree over ranks.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// out[t] = Σ_p rows[row_of[t, p]] for tokens [begin, end), p over [0, n) along the tree of comm/communicator.h:
/// sum(lo, hi) = sum(lo, mid) + sum(mid, hi), where mid − lo is the largest power of two below hi − lo. fp32 inside,
/// rounded once. row_of −1: rank p has nothing for the token, which counts as zero: the bits are those of a
/// reduce-scatter to which every rank contributes. rows [·, width], row_of [tokens, n], out [tokens, width].
template <class From, class To>
void sum_partials(const From* rows, const int32_t* row_of, int64_t n, To* out, int64_t begin, int64_t end,
                  int64_t width);

}  // namespace athanor::kernels
