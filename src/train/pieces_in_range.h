#pragma once
// Pieces of flat memory in order, and those of them that lie in a range.

#include <algorithm>

#include "layout/buckets.h"

namespace athanor::inline train {

/// Calls visit(common, piece) for each piece that has elements in `range`, in order; `common` are these elements.
/// @param pieces  each with a FlatRange `range`, in the order of flat memory.
template <class Pieces, class Visit>
void for_each_piece_in(const Pieces& pieces, FlatRange range, Visit visit) {
  auto piece = std::ranges::lower_bound(pieces, range.begin + 1, {}, [](const auto& p) { return p.range.end; });
  for (; piece != pieces.end() && piece->range.begin < range.end; ++piece)
    visit(intersect(piece->range, range), *piece);
}

}  // namespace athanor::inline train
