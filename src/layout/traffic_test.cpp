#include "layout/traffic.h"

#include <gtest/gtest.h>

namespace athanor::traffic_test {
namespace {

TEST(Traffic, SupernodesAreRunsOfNodes) {
  EXPECT_EQ(supernodes_of({.ranks_per_node = 2, .nodes_per_supernode = 2}, 6), (std::vector<int>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(supernodes_of({}, 3), (std::vector<int>{0, 0, 0}));
}

}  // namespace
}  // namespace athanor::traffic_test
