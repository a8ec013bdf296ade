#pragma once
// Finds the pieces of a tensor that may share elements with a slice, without looking at all of them: a tensor of a run
// on 12,288 ranks has thousands of pieces, and a rank needs one slice of it.

#include <cstdint>
#include <vector>

#include "checkpoint/manifest.h"

namespace athanor::inline checkpoint {

/// Indexes the pieces of one tensor by their first and last row-major positions in it: an interval tree in an array.
class PieceIndex {
 public:
  /// @param pieces  must outlive this object.
  explicit PieceIndex(const std::vector<const Piece*>& pieces);

  /// Calls visit(piece) once for every piece whose interval of positions overlaps the slice's, in the order of their
  /// first elements. All pieces that share elements with the slice are among them; others may be, too. Costs at most
  /// log(pieces) for each visited piece.
  template <class Visit>
  void for_each_near(const Slice& slice, Visit visit) const {
    if (slice.num_elements() == 0) return;
    const int64_t first = global_position(slice, 0), last = global_position(slice, slice.num_elements() - 1);
    visit_within(0, intervals_.size(), first, last, visit);
  }

 private:
  struct Interval {
    int64_t first, last;
    const Piece* piece;
  };

  // A subtree is [begin, end); its root is the middle element.
  static size_t middle(size_t begin, size_t end) { return begin + (end - begin) / 2; }
  int64_t fill_farthest(size_t begin, size_t end);

  template <class Visit>
  void visit_within(size_t begin, size_t end, int64_t first, int64_t last, Visit& visit) const {
    if (begin == end) return;
    const size_t root = middle(begin, end);
    if (farthest_[root] < first) return;
    visit_within(begin, root, first, last, visit);
    if (intervals_[root].first > last) return;
    if (intervals_[root].last >= first) visit(*intervals_[root].piece);
    visit_within(root + 1, end, first, last, visit);
  }

  std::vector<Interval> intervals_;  // sorted by `first`
  std::vector<int64_t> farthest_;    // for each root, the greatest `last` in its subtree
};

}  // namespace athanor::inline checkpoint
