#include "staging/two_trees.h"

#include <bit>
#include <cstddef>

namespace athanor::staging {
namespace {

// The first tree, over 1 … last in their order: odd numbers are leaves, and a number whose lowest bit is b has its
// children at a distance of b / 2. Those above `last` are left out, and what is below them moves up.

int parent_in_order(int number, int last) {
  const int bit = number & -number;
  const int up = (number ^ bit) | (bit << 1);
  return up > last ? number ^ bit : up;
}

std::vector<int> children_in_order(int number, int last) {
  const int half = (number & -number) / 2;
  if (half == 0) return {};
  std::vector<int> children{number - half};
  for (int step = half; step > 0; step /= 2) {
    if (number + step > last) continue;
    children.push_back(number + step);
    break;
  }
  return children;
}

// The number of a node in the order of a tree. The second tree turns odd numbers into even ones, and so its leaves are
// inner nodes of the first: by a mirror, or where that keeps odd numbers odd, by a shift.
int number_of(int tree, int node, int last) {
  if (tree == 0) return node;
  return last % 2 == 0 ? last + 1 - node : node % last + 1;
}

int node_of(int tree, int number, int last) {
  if (tree == 0) return number;
  return last % 2 == 0 ? last + 1 - number : (number + last - 2) % last + 1;
}

}  // namespace

TreePlace place_in_tree(int tree, int node, int num_nodes) {
  const int last = num_nodes - 1;
  if (last == 0) return {};
  if (node == 0) return {-1, {node_of(tree, static_cast<int>(std::bit_floor(static_cast<unsigned>(last))), last)}};
  const int number = number_of(tree, node, last);
  const int up = parent_in_order(number, last);
  TreePlace place{up == 0 ? 0 : node_of(tree, up, last)};
  for (const int child : children_in_order(number, last)) place.children.push_back(node_of(tree, child, last));
  return place;
}

DeepestPath deepest_path(int num_nodes) {
  DeepestPath deepest;
  const auto descend = [&](const auto& self, int tree, int node, DeepestPath here) -> void {
    if (here.sends > deepest.sends) deepest = here;
    const auto children = place_in_tree(tree, node, num_nodes).children;
    for (size_t i = 0; i < children.size(); ++i)
      self(self, tree, children[i], {here.hops + 1, here.sends + static_cast<int>(i) + 1});
  };
  for (int tree = 0; tree < kNumTrees; ++tree) descend(descend, tree, 0, {});
  return deepest;
}

}  // namespace athanor::staging
