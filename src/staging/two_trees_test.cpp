#include "staging/two_trees.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

namespace athanor::staging::two_trees_test {

const int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 32, 33, 100, 511, 4096, 12288};

TEST(TwoTrees, EveryNodeIsReachedOnceFromTheFirst) {
  for (const int size : kSizes) {
    for (int tree = 0; tree < kNumTrees; ++tree) {
      std::vector<int> reached(static_cast<size_t>(size));
      std::vector<int> waiting{0};
      while (!waiting.empty()) {
        const int node = waiting.back();
        waiting.pop_back();
        ++reached[static_cast<size_t>(node)];
        for (const int child : place_in_tree(tree, node, size).children) {
          EXPECT_EQ(place_in_tree(tree, child, size).parent, node) << size;
          waiting.push_back(child);
        }
      }
      EXPECT_EQ(std::count(reached.begin(), reached.end(), 1), size) << size << " nodes, tree " << tree;
    }
  }
}

TEST(TwoTrees, NoNodeHasChildrenInBothSoThatNoneSendsMoreThanItReceives) {
  for (const int size : kSizes) {
    for (int node = 1; node < size; ++node) {
      const auto first = place_in_tree(0, node, size).children, second = place_in_tree(1, node, size).children;
      EXPECT_TRUE(first.empty() || second.empty()) << "node " << node << " of " << size;
      EXPECT_LE(first.size() + second.size(), 2u);
    }
  }
}

TEST(TwoTrees, TheDeepestNodeIsLogTwoHopsAway) {
  for (const int size : kSizes) {
    int deepest = 0;
    for (int tree = 0; tree < kNumTrees; ++tree) {
      for (int node = 1; node < size; ++node) {
        int hops = 0;
        for (int at = node; at != 0; at = place_in_tree(tree, at, size).parent) ++hops;
        deepest = std::max(deepest, hops);
      }
    }
    EXPECT_LE(deepest, std::bit_width(static_cast<unsigned>(size - 1))) << size;
    EXPECT_LE(deepest_path(size).hops, deepest) << size;
    EXPECT_LE(deepest_path(size).sends, 2 * deepest) << size;
  }
}

}  // namespace athanor::staging::two_trees_test
