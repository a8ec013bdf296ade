#include "checkpoint/piece_index.h"

#include <algorithm>

namespace athanor::inline checkpoint {

PieceIndex::PieceIndex(const std::vector<const Piece*>& pieces) {
  intervals_.reserve(pieces.size());
  for (const Piece* piece : pieces) {
    if (piece->num_elements() == 0) continue;
    const SliceRef slice = piece->slice_ref();
    intervals_.push_back({global_position(slice, 0), global_position(slice, piece->num_elements() - 1), piece});
  }
  std::stable_sort(intervals_.begin(), intervals_.end(),
                   [](const Interval& a, const Interval& b) { return a.first < b.first; });
  farthest_.resize(intervals_.size());
  fill_farthest(0, intervals_.size());
}

int64_t PieceIndex::fill_farthest(size_t begin, size_t end) {
  if (begin == end) return -1;
  const size_t root = middle(begin, end);
  farthest_[root] = std::max({intervals_[root].last, fill_farthest(begin, root), fill_farthest(root + 1, end)});
  return farthest_[root];
}

}  // namespace athanor::inline checkpoint
