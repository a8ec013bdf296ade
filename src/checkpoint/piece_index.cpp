#include "checkpoint/piece_index.h"

#include <algorithm>

#include "base/error.h"

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

void fail_overlap(const std::vector<const Piece*>& used, const Piece& piece, const std::string& where) {
  const Slice slice = piece.slice();
  const auto shares = [&](const Piece* other) {
    const Slice of_other = other->slice();
    return !CommonRuns(of_other, slice).empty();
  };
  const auto other = std::ranges::find_if(used, shares);
  ATHANOR_ASSERT(other != used.end());
  fail<CheckpointError>("{}: tensor {}: two pieces hold the same elements: {} and {}", where, piece.tensor_name(),
                        slice_text((*other)->slice()), slice_text(slice));
}

}  // namespace athanor::inline checkpoint
