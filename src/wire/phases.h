#pragma once
// The algorithms of the collectives over point-to-point messages. Each bounds the messages in flight and the memory
// that it holds.

#include <functional>
#include <memory>
#include <vector>

#include "wire/operation.h"
#include "wire/tree_sum.h"

namespace athanor::comm {

/// Contiguous bytes to send to a member, or to receive from one; `peer` is its index in the group.
struct Piece {
  int peer;
  char* data;
  int64_t bytes;
};

/// Independent sends and receives, both in the order of their lists, cut into messages. This cannot hang if every rank
/// orders its pieces by the distance between the two ranks: of all incomplete messages, the first in this order has
/// been posted at both ends.
/// @param local  copies the bytes that stay on this rank, once the first messages are on their way; may be empty.
std::unique_ptr<Phase> exchange(std::vector<Piece> sends, std::vector<Piece> receives, std::function<void()> local);

/// Sets `out` to the tree sum over all members' pieces of this rank's part of `in`. Streamed: it holds a few MB of
/// memory, and adds while the next pieces arrive. `out` may be this rank's part of `in`.
/// @param begins  element where each member's part begins, and the end.
std::unique_ptr<Phase> sum_parts(Element element, Combine combine, Scale scale, const char* in,
                                 std::vector<int64_t> begins, char* out);

/// Sets member 0's `x` to the tree sum over all members' `x`, rounded there; the others' `x` is left as it is.
std::unique_ptr<Phase> sum_to_first(Element element, Combine combine, Scale scale, char* x, int64_t count);

/// Sends `x` of member `root` to all, chunk after chunk along the tree.
std::unique_ptr<Phase> broadcast_along_tree(char* x, int64_t bytes, int root);

/// A barrier: complete when every member has come.
std::unique_ptr<Phase> dissemination_barrier();

}  // namespace athanor::comm
