#pragma once
// How the members of a group lie on nodes, as far as the algorithms of sums and gathers use it.

#include <bit>
#include <string>
#include <vector>

namespace athanor::comm {

/// Nodes with equal numbers of consecutive members: member m is on node m / per_node.
struct NodeShape {
  int per_node = 1, nodes = 1;

  /// Two levels save messages and bytes between nodes only if nodes have several members, and if there are several.
  bool two_level() const { return per_node > 1 && nodes > 1; }
};

/// Returns the shape of a group whose members are on these nodes (any names); without two levels if the members of a
/// node do not follow each other, or if nodes have different numbers of members.
template <class Name>
NodeShape find_node_shape(const std::vector<Name>& node_of_member) {
  const size_t size = node_of_member.size();
  size_t per_node = 1;
  while (per_node < size && node_of_member[per_node] == node_of_member[0]) ++per_node;
  if (size == 0 || size % per_node != 0) return {};
  for (size_t m = 1; m < size; ++m) {
    const bool follows = node_of_member[m] == node_of_member[m - 1];
    if (follows != (m % per_node != 0)) return {};
  }
  return {static_cast<int>(per_node), static_cast<int>(size / per_node)};
}

/// Returns the sizes of the blocks into which the tree over all members (index_tree.h) divides [begin, end): powers of
/// two, each a branch of the tree whose sum can be made before others are known. There are at most 2 log₂(end − begin).
inline std::vector<int> tree_blocks(int begin, int end) {
  std::vector<int> sizes;
  while (begin < end) {
    int size = begin == 0 ? 1 << 30 : begin & -begin;
    while (size > end - begin) size /= 2;
    sizes.push_back(size);
    begin += size;
  }
  return sizes;
}

}  // namespace athanor::comm
