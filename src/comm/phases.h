#pragma once
// The algorithms of the collectives over point-to-point messages. Each bounds what is in flight and what it holds.

#include <functional>
#include <memory>
#include <vector>

#include "comm/operation.h"
#include "comm/tree_sum.h"

namespace athanor::comm {

/// Contiguous bytes for a member, or from one.
struct Piece {
  int peer;
  char* data;
  int64_t bytes;
};

/// Sends and receives that do not depend on one another, both in the order of their lists, cut into messages. Nothing
/// hangs where every rank orders its pieces by the distance between the two ranks: the message that is first in this
/// order of all that are not over has both its ends posted.
/// @param local  copies what stays here, once the first messages are on their way; may be empty.
std::unique_ptr<Phase> exchange(std::vector<Piece> sends, std::vector<Piece> receives, std::function<void()> local);

/// out = the tree over all members' pieces of this rank's part of `in`. Streamed: a few MB of memory, sums while the
/// next pieces arrive. `out` may be the own part of `in`.
/// @param begins  element where each member's part begins, and the end.
std::unique_ptr<Phase> sum_parts(Element element, Combine combine, Scale scale, const char* in,
                                 std::vector<int64_t> begins, char* out);

/// The tree over all members' `x`, at member 0 and rounded there; the others' `x` stays.
std::unique_ptr<Phase> sum_to_first(Element element, Combine combine, Scale scale, char* x, int64_t count);

/// From `root` to all, chunk after chunk along the tree.
std::unique_ptr<Phase> spread(char* x, int64_t bytes, int root);

/// Every member has come.
std::unique_ptr<Phase> meet();

}  // namespace athanor::comm
