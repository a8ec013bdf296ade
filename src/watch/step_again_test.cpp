#include "watch/step_again.h"

#include <gtest/gtest.h>

#include <set>

#include "train/testing/layout_cases.h"

namespace athanor::step_again_test {
namespace {

std::vector<int> nodes_of(int ranks, int per_node) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / per_node);
  return nodes;
}

TEST(StandIns, TheStandInOfTheRankIsOnAnotherNodeAndEachRankStandsInForOne) {
  for (const LayoutCase& degrees : kLayoutCases) {
    const Layout layout(config_with(degrees), degrees.ranks());
    for (const int per_node : {1, 2, 3}) {
      const auto nodes = nodes_of(degrees.ranks(), per_node);
      for (int rank = 0; rank < degrees.ranks(); ++rank) {
        const auto stand_ins = choose_stand_ins(layout, nodes, rank);
        ASSERT_EQ(stand_ins.has_value(), nodes.back() > 0) << degrees.name;
        if (!stand_ins) continue;
        EXPECT_NE(nodes[static_cast<size_t>(stand_ins->stand_in_for(layout, rank))], nodes[static_cast<size_t>(rank)]);
        std::set<int> all;
        for (int each = 0; each < degrees.ranks(); ++each) {
          const int there = stand_ins->stand_in_for(layout, each);
          EXPECT_EQ(stand_ins->replaced_by(layout, there), each);
          all.insert(there);
          if (stand_ins->what != StandIns::TakesOver::kSequences) continue;
          for (const Axis axis : {Axis::kPipeline, Axis::kTensor, Axis::kExpert})
            EXPECT_EQ(layout.coordinate(there, axis), layout.coordinate(each, axis)) << degrees.name;
        }
        EXPECT_EQ(std::ssize(all), degrees.ranks());
      }
    }
  }
}

struct Case {
  LayoutCase degrees;
  int per_node;
  StandIns::TakesOver what;
};

TEST(StandIns, OnlySequencesMoveIfAnotherNodeHasTheSameWeights) {
  using enum StandIns::TakesOver;
  for (const auto& [degrees, per_node, what] : {
           Case{{.name = "data", .data = 4}, 2, kSequences},
           Case{{.name = "a tensor group on each node", .data = 2, .tensor = 2}, 2, kSequences},
           Case{{.name = "a pipeline over the nodes", .pipeline = 2}, 1, kPlace},
           Case{{.name = "a tensor group over the nodes", .tensor = 2}, 1, kPlace},
           Case{{.name = "one copy of each expert", .data = 2, .expert = 2}, 1, kPlace},
           Case{{.name = "two copies of each expert", .data = 4, .expert = 2}, 2, kSequences},
           Case{{.name = "both copies of an expert on its node", .data = 4, .expert = 2}, 3, kPlace},
       }) {
    const Layout layout(config_with(degrees), degrees.ranks());
    EXPECT_EQ(choose_stand_ins(layout, nodes_of(degrees.ranks(), per_node), 0)->what, what) << degrees.name;
  }
}

TEST(StandIns, SequencesOfABalanceGroupStayTogether) {
  RunConfig config = config_with({.name = "", .data = 4});
  config.moe.balance = "capacity";
  config.moe.balance_group = 2;
  const Layout layout(config, 4);
  if (layout.balance_ranks() == 1) GTEST_SKIP() << "this balance group lies within a microbatch";
  const auto stand_ins = choose_stand_ins(layout, nodes_of(4, 1), 0);
  EXPECT_EQ(stand_ins->what, StandIns::TakesOver::kSequences);
  EXPECT_EQ(stand_ins->shift % layout.balance_ranks(), 0);
}

}  // namespace
}  // namespace athanor::step_again_test
