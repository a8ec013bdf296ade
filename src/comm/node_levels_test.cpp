// Sums and gathers in two levels: among the ranks of a node, and between nodes.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "comm/testing/collectives.h"
#include "comm/thread_ranks.h"
#include "comm/wire_world.h"

namespace athanor::comm::node_levels_test {
namespace {

constexpr at::ScalarType kTypes[] = {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble, at::kLong};

std::vector<Tensor> terms_of(int n, int call, int64_t count, at::ScalarType type) {
  std::vector<Tensor> terms;
  for (int r = 0; r < n; ++r) terms.push_back(term_of(r, call, count, type));
  return terms;
}

// Runs `rank` in a world whose nodes have `per_node` ranks.
void run_on_nodes(int size, int per_node, const std::function<void(Communicator&)>& rank) {
  WorldOptions options;
  options.ranks_per_node = per_node;
  options.timeout = std::chrono::minutes(2);  // for those that wait for a rank whose sum is wrong
  run_ranks(
      size, [&](World& world) { rank(world.all()); }, options);
}

// The terms of a sum and what the tree makes of them, computed once for all ranks.
struct Sum {
  at::ScalarType type;
  Reduction reduction;
  std::vector<Tensor> terms;
  Tensor expected;
};

Sum sum_of(int ranks, int call, int64_t count, at::ScalarType type, Reduction reduction) {
  Sum sum{type, reduction, terms_of(ranks, call, count, type), {}};
  sum.expected = tree_of(sum.terms, reduction);
  return sum;
}

// The terms have a part of equal size for each rank.
void expect_tree_sums(Communicator& group, const Sum& sum) {
  const int n = group.size();
  const int64_t count = sum.expected.numel() / n;
  const std::string what =
      fmt::format("{} ranks on nodes of {}, {} {}, reduction {}", n, group.options().shape.per_node, count,
                  c10::toString(sum.type), static_cast<int>(sum.reduction));
  const Tensor mine = sum.terms[static_cast<size_t>(group.rank())].clone(), part = at::empty({count}, mine.options());
  const Tensor own = sum.expected.narrow(0, group.rank() * count, count);
  group.reduce_scatter(part, mine, sum.reduction).wait();
  require(same_bits(part, own), "reduce_scatter: " + what);
  const Tensor in_place = mine.clone();
  group.reduce_scatter(in_place.narrow(0, group.rank() * count, count), in_place, sum.reduction).wait();
  require(same_bits(in_place.narrow(0, group.rank() * count, count), own), "reduce_scatter in place: " + what);
  const Tensor whole = at::empty_like(mine);
  group.all_gather(whole, part).wait();
  require(same_bits(whole, sum.expected), "all_gather: " + what);
  const Tensor all = mine.clone();
  group.all_reduce(all, sum.reduction).wait();
  require(same_bits(all, sum.expected), "all_reduce: " + what);
}

struct OneKind {
  at::ScalarType type;
  Reduction reduction;
};

std::vector<OneKind> all_kinds() {
  std::vector<OneKind> kinds;
  for (const auto type : kTypes) {
    for (const auto reduction : {Reduction::kSum, Reduction::kMean, Reduction::kMax})
      if (type != at::kLong || reduction != Reduction::kMean) kinds.push_back({type, reduction});
  }
  return kinds;
}

constexpr std::pair<int, int> kNodes[] = {{4, 2}, {6, 2}, {6, 3}, {8, 4}, {12, 4}, {10, 5}, {12, 6}, {24, 12}};

void expect_tree_sums_on_nodes(int ranks, int per_node, const std::vector<OneKind>& kinds) {
  std::vector<Sum> sums;
  for (const auto& [type, reduction] : kinds)
    sums.push_back(sum_of(ranks, static_cast<int>(sums.size()) + 1, ranks * int64_t{2500}, type, reduction));
  run_on_nodes(ranks, per_node, [&](Communicator& group) {
    require(group.options().shape.two_level(), "the nodes are known");
    for (const Sum& sum : sums) expect_tree_sums(group, sum);
  });
}

// Each shape of the nodes has every type with one of three reductions, and the next shape has it with the next one.
// Integers, which have no mean, are left out where it would be their turn.
TEST(NodeLevels, SumsHaveTheBitsOfTheTreeForAnyNumberOfRanksOnANode) {
  const std::vector<OneKind> all = all_kinds();
  for (size_t i = 0; i < std::size(kNodes); ++i) {
    std::vector<OneKind> some;
    for (size_t k = 0; k < all.size(); ++k)
      if ((k / 3 + k + i) % 3 == 0) some.push_back(all[k]);
    expect_tree_sums_on_nodes(kNodes[i].first, kNodes[i].second, some);
  }
}

TEST(TestAllNodeLevels, EveryKindOfSumHasTheBitsOfTheTreeForAnyNumberOfRanksOnANode) {
  for (const auto& [ranks, per_node] : kNodes) expect_tree_sums_on_nodes(ranks, per_node, all_kinds());
}

// Parts of several pieces, parts that differ by an element, and sums of fewer elements than ranks.
TEST(NodeLevels, SumsOfAnySizeHaveTheBitsOfTheTree) {
  int call = 100;
  for (const int64_t count : {1, 3, 2049, 300'001}) {
    for (const auto type : {at::kBFloat16, at::kFloat}) {
      const Sum even = sum_of(6, ++call, 6 * count, type, Reduction::kSum),
                uneven = sum_of(6, ++call, 6 * count + 4, type, Reduction::kSum);
      run_on_nodes(6, 3, [&](Communicator& group) {
        expect_tree_sums(group, even);
        const Tensor x = uneven.terms[static_cast<size_t>(group.rank())].clone();
        group.all_reduce(x).wait();
        require(same_bits(x, uneven.expected), fmt::format("all_reduce of {}", x.numel()));
      });
    }
  }
}

TEST(NodeLevels, ManySumsMayBeInFlight) {
  std::vector<Sum> expected;
  for (int call = 0; call < 40; ++call) expected.push_back(sum_of(6, call, 5000, at::kFloat, Reduction::kSum));
  run_on_nodes(6, 2, [&](Communicator& group) {
    std::vector<Tensor> sums;
    std::vector<Pending> pending;
    for (const Sum& one : expected) {
      sums.push_back(one.terms[static_cast<size_t>(group.rank())].clone());
      pending.push_back(group.all_reduce(sums.back()));
    }
    for (size_t call = 0; call < sums.size(); ++call) {
      pending[call].wait();
      require(same_bits(sums[call], expected[call].expected), fmt::format("sum {}", call));
    }
  });
}

TEST(NodeLevels, FewerBytesLeaveANode) {
  std::atomic<int64_t> flat = 0, levels = 0;
  const auto outside = [](Communicator& group) {
    group.all_reduce(at::ones({12'000})).wait();
    int64_t bytes = 0;
    for (int r = 0; r < group.size(); ++r)
      if (r / 4 != group.rank() / 4) bytes += group.traffic().bytes_to[static_cast<size_t>(r)];
    return bytes;
  };
  run_ranks(12, [&](World& world) { flat += outside(world.all()); });
  run_on_nodes(12, 4, [&](Communicator& group) { levels += outside(group); });
  EXPECT_EQ(flat, 2 * 12'000 * 4 * 8) << "twice the tensor, to the eight ranks of the other nodes of twelve";
  EXPECT_EQ(levels, flat / 4);
}

TEST(SmallGathers, OfLargeGroupsTravelAlongTheTreeAndHaveEveryRanksPart) {
  for (const int n : {17, 23, 32}) {
    run_ranks(n, [n](World& world) {
      Communicator& group = world.all();
      for (const int64_t count : {1, 77}) {
        std::vector<Tensor> parts;
        for (int r = 0; r < n; ++r) parts.push_back(term_of(r, 3, count, at::kLong));
        const Tensor expected = at::cat(parts), all = at::empty_like(expected), in_place = at::empty_like(expected);
        group.all_gather(all, parts[static_cast<size_t>(group.rank())]).wait();
        require(same_bits(all, expected), fmt::format("all_gather of {} on {} ranks", count, n));
        const Tensor own = in_place.narrow(0, group.rank() * count, count);
        own.copy_(parts[static_cast<size_t>(group.rank())]);
        group.all_gather(in_place, own).wait();
        require(same_bits(in_place, expected), fmt::format("all_gather in place of {} on {} ranks", count, n));
      }
    });
  }
}

TEST(NodeShapes, MembersOfANodeMustFollowEachOtherInEqualNumbers) {
  using Nodes = std::vector<int>;
  const auto is = [](const Nodes& nodes, int per_node, int count) {
    const auto shape = find_node_shape(nodes);
    return shape.per_node == per_node && shape.nodes == count;
  };
  EXPECT_TRUE(is(Nodes{0, 0, 1, 1}, 2, 2));
  EXPECT_TRUE(is(Nodes{4, 4, 4}, 3, 1));
  EXPECT_TRUE(is(Nodes{3, 2, 1}, 1, 3));
  EXPECT_TRUE(is(Nodes{0, 0, 1}, 1, 1)) << "unequal";
  EXPECT_TRUE(is(Nodes{0, 0, 1, 2}, 1, 1));
  EXPECT_TRUE(is(Nodes{0, 0, 0, 0, 1, 1}, 1, 1));
  EXPECT_TRUE(is(Nodes{0, 0, 1, 1, 1, 1}, 1, 1));
  EXPECT_FALSE(find_node_shape(Nodes{0, 1, 0, 1}).two_level());
  EXPECT_FALSE(find_node_shape(Nodes{}).two_level());
}

TEST(NodeShapes, ANodesMembersAreBranchesOfTheTree) {
  using Sizes = std::vector<int>;
  EXPECT_EQ(tree_blocks(0, 8), Sizes{8});
  EXPECT_EQ(tree_blocks(8, 16), Sizes{8});
  EXPECT_EQ(tree_blocks(0, 12), (Sizes{8, 4}));
  EXPECT_EQ(tree_blocks(12, 24), (Sizes{4, 8}));
  EXPECT_EQ(tree_blocks(24, 36), (Sizes{8, 4}));
  EXPECT_EQ(tree_blocks(5, 10), (Sizes{1, 2, 2}));
}

}  // namespace
}  // namespace athanor::comm::node_levels_test
