#pragma once
// The algorithms of the collectives over point-to-point messages. Each bounds the messages in flight and the memory
// that it holds.

#include <functional>
#include <memory>
#include <vector>

#include "wire/node_shape.h"
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

/// A reduce-scatter: `out` becomes the tree sum over all members' pieces of this member's part of `in`.
struct SumSpec {
  Element element;
  Combine combine;
  Scale scale;
  const char* in;
  std::vector<int64_t> begins;  ///< element where each member's part begins, and the end
  char* out;                    ///< may be this member's part of `in`
};

/// Streamed: it holds a few MB of memory, and adds while the next pieces arrive. @param me  this member's index.
std::unique_ptr<Phase> sum_parts(SumSpec spec, int me);

/// The same sum, with the same bits, in two phases: among the members of a node, and then between nodes. For n members
/// of I on each of O nodes and b bytes of `in`, a member sends b (I−1)/I in (I−1)·O messages or more inside its node.
/// To other nodes it sends K w/e (b/I) (O−1)/O in O−1 messages or more. K is the number of branches of the tree on its
/// node (tree_blocks): 1 if I is a power of two, else mostly 2. w/e is the size of an element in the sum over that in
/// `in`: 2 for bf16 and fp16, else 1. Between the phases a member holds K w/e b/I bytes.
Operation::Phases sum_in_two_levels(const NodeShape& shape, const std::function<SumSpec()>& spec, int me);

/// An all-gather in two phases: between nodes, and then among the members of a node. A member sends (b/n)(O−1) to other
/// nodes and b (I−1)/I inside.
/// @param begins  byte of `out` where each member's part begins, and the end.
/// @param own     this member's part; it may be in its place in `out`.
Operation::Phases gather_in_two_levels(const NodeShape& shape, const std::function<std::vector<int64_t>()>& begins,
                                       int me, char* own, char* out);

/// Sets member 0's `x` to the tree sum over all members' `x`, rounded there; the others' `x` is left as it is.
std::unique_ptr<Phase> sum_to_first(Element element, Combine combine, Scale scale, char* x, int64_t count);

/// Gathers all members' parts of `bytes` at member 0's `out`, each rank sending those below it in the tree at once. The
/// others' `out` has the same size and is used on the way.
std::unique_ptr<Phase> gather_to_first(const char* own, int64_t bytes, char* out);

/// Sends `x` of member `root` to all, chunk after chunk along the tree.
std::unique_ptr<Phase> broadcast_along_tree(char* x, int64_t bytes, int root);

/// A barrier: complete when every member has come.
std::unique_ptr<Phase> dissemination_barrier();

}  // namespace athanor::comm
