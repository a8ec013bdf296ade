#include "checkpoint/piece_cover.h"

#include <algorithm>

#include "base/error.h"

namespace athanor::inline checkpoint {

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
