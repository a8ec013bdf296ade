#pragma once
// Finds the pieces that hold the elements of a slice, each element in one piece.

#include <string>
#include <vector>

#include "checkpoint/filled_elements.h"
#include "checkpoint/piece_index.h"

namespace athanor::inline checkpoint {

/// @param used  pieces of the same tensor; one of them shares elements with `piece`, and the first that does is named.
[[noreturn]] void fail_overlap(const std::vector<const Piece*>& used, const Piece& piece, const std::string& where);

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
