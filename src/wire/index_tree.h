#pragma once
// The binary tree over the ranks of a group, along which all sums run, and the way a tensor is cut among the ranks.
//
// sum(lo, hi) = sum(lo, mid) + sum(mid, hi), where mid − lo is the largest power of two below hi − lo. As messages this
// is the binomial tree: rank i adds what it receives from i + 1, i + 2, i + 4, … in this order, below its own lowest
// bit, while there are such ranks. It sends the sum to i without its lowest bit.

#include <bit>
#include <cstdint>
#include <vector>

namespace athanor::comm {

inline int tree_parent(int index) { return index & (index - 1); }  ///< for index > 0; member 0 is the root

/// Returns the children in the order of the sum.
inline std::vector<int> tree_children(int index, int size) {
  std::vector<int> children;
  for (int step = 1; index + step < size && (index & step) == 0; step <<= 1) children.push_back(index + step);
  return children;
}

/// Returns the end of the members below `index` in the tree, itself included: [index, tree_end).
inline int tree_end(int index, int size) {
  const int step = index & -index;
  return index == 0 || index + step > size ? size : index + step;
}

/// Returns the element at which part `index` begins if a tensor of `count` elements is cut into `size` parts that
/// differ by at most one element, the longer ones first. Part `size` begins at the end.
inline int64_t part_begin(int64_t count, int size, int index) {
  const int64_t each = count / size, longer = count % size;
  return each * index + (index < longer ? index : longer);
}

/// All-reduces up to this size go up and down the tree, in 2·log₂ n steps of one message each; larger ones are a
/// reduce-scatter and an all-gather, which send fewer bytes in 2·(n − 1) messages. The bits are equal.
inline constexpr int64_t kSmallAllReduceBytes = 8 << 10;

/// All-gathers of up to this many bytes in all go up and down the tree, in 2·log₂ n messages a rank, if the group is
/// larger than kFewMembers; others take n − 1 messages.
inline constexpr int64_t kSmallGatherBytes = 4 << 20;
inline constexpr int kFewMembers = 16;
inline bool gathers_along_tree(int64_t all_bytes, int size) {
  return size > kFewMembers && all_bytes <= kSmallGatherBytes;
}

}  // namespace athanor::comm
