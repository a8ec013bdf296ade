#pragma once
// Finds the pieces of a tensor that may share elements with a slice, without looking at all of them: a tensor of a run
// on 12,288 ranks has thousands of pieces, and a rank needs one slice of it.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
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

/// Records which elements of a slice are filled: one bit each, a thirty-second of the memory of fp32 elements.
class FilledElements {
 public:
  explicit FilledElements(int64_t count) : words_(static_cast<size_t>((count + 63) / 64)), count_(count) {}

  /// Fills [first, first + count) and returns how many of these elements were not filled before.
  int64_t fill(int64_t first, int64_t count) {
    int64_t fresh = 0;
    for (int64_t at = first, end = first + count; at < end;) {
      const int64_t bit = at % 64, length = std::min(64 - bit, end - at);
      const uint64_t mask = (length == 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1) << bit;
      uint64_t& word = words_[static_cast<size_t>(at / 64)];
      fresh += std::popcount(mask & ~word);
      word |= mask;
      at += length;
    }
    num_filled_ += fresh;
    return fresh;
  }
  int64_t num_missing() const { return count_ - num_filled_; }
  /// Returns the first element, counted from 0, that is missing. There must be one.
  int64_t first_missing() const {
    const auto word = std::find_if(words_.begin(), words_.end(), [](uint64_t w) { return ~w != 0; });
    return (word - words_.begin()) * 64 + std::countr_one(*word);
  }

 private:
  std::vector<uint64_t> words_;
  int64_t count_, num_filled_ = 0;
};

/// @param used  pieces of the same tensor; one of them shares elements with `piece`, and the first that does is named.
[[noreturn]] void fail_overlap(const std::vector<const Piece*>& used, const Piece& piece, const std::string& where);

/// Finds the pieces that hold the elements of a slice, each element in one piece.
///
/// Calls visit(piece, run) for each run that a piece (slice a of the run) shares with `wanted` (slice b), piece by
/// piece.
/// @param index  of the tensor's pieces; null if it has none.
/// @param where  names the checkpoint in the error.
/// @return which elements of `wanted` a piece holds.
/// @throws CheckpointError if two pieces hold the same element of `wanted`.
template <class Visit>
FilledElements cover_with_pieces(const Slice& wanted, const PieceIndex* index, const std::string& where, Visit visit) {
  FilledElements filled(wanted.num_elements());
  std::vector<const Piece*> used;
  const auto fill = [&](const Piece& piece) {
    const Slice slice = piece.slice();
    bool is_used = false;
    CommonRuns(slice, wanted).for_each([&](const CommonRun& run) {
      if (filled.fill(run.in_b, run.count) < run.count) fail_overlap(used, piece, where);
      is_used = true;
      visit(piece, run);
    });
    if (is_used) used.push_back(&piece);
  };
  if (index) index->for_each_near(wanted, fill);
  return filled;
}

}  // namespace athanor::inline checkpoint
