// Sums and gathers in two levels: among the ranks of a node, and between nodes.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>

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
  run_ranks(
      size, [&](World& world) { rank(world.all()); }, options);
}

void expect_tree_sums(Communicator& group, at::ScalarType type, Reduction reduction, int64_t count, int call) {
  const int n = group.size();
  const std::string what =
      fmt::format("{} ranks on nodes of {}, {} {}, reduction {}", n, group.options().shape.per_node, count,
                  c10::toString(type), static_cast<int>(reduction));
  const Tensor expected = tree_of(terms_of(n, call, n * count, type), reduction);
  const Tensor mine = term_of(group.rank(), call, n * count, type), part = at::empty({count}, mine.options());
  const Tensor own = expected.narrow(0, group.rank() * count, count).contiguous();
  group.reduce_scatter(part, mine, reduction).wait();
  require(same_bits(part, own), "reduce_scatter: " + what);
  const Tensor in_place = mine.clone();
  group.reduce_scatter(in_place.narrow(0, group.rank() * count, count), in_place, reduction).wait();
  require(same_bits(in_place.narrow(0, group.rank() * count, count), own), "reduce_scatter in place: " + what);
  const Tensor whole = at::empty_like(mine);
  group.all_gather(whole, part).wait();
  require(same_bits(whole, expected), "all_gather: " + what);
  const Tensor all = mine.clone();
  group.all_reduce(all, reduction).wait();
  require(same_bits(all, expected), "all_reduce: " + what);
}

TEST(NodeLevels, SumsHaveTheBitsOfTheTreeForAnyNumberOfRanksOnANode) {
  for (const auto& [n, per_node] :
       std::vector<std::pair<int, int>>{{4, 2}, {6, 2}, {6, 3}, {8, 4}, {12, 4}, {10, 5}, {12, 6}, {24, 12}}) {
    run_on_nodes(n, per_node, [](Communicator& group) {
      require(group.options().shape.two_level(), "the nodes are known");
      int call = 0;
      for (const auto type : kTypes) {
        for (const auto reduction : {Reduction::kSum, Reduction::kMean, Reduction::kMax}) {
          if (type == at::kLong && reduction == Reduction::kMean) continue;
          expect_tree_sums(group, type, reduction, 2500, ++call);
        }
      }
    });
  }
}

// Parts of several pieces, parts that differ by an element, and sums of fewer elements than ranks.
TEST(NodeLevels, SumsOfAnySizeHaveTheBitsOfTheTree) {
  run_on_nodes(6, 3, [](Communicator& group) {
    int call = 100;
    for (const int64_t count : {1, 3, 2049, 300'001}) {
      for (const auto type : {at::kBFloat16, at::kFloat}) {
        expect_tree_sums(group, type, Reduction::kSum, count, ++call);
        const int64_t uneven = 6 * count + 4;
        const Tensor x = term_of(group.rank(), ++call, uneven, type);
        const Tensor expected = tree_of(terms_of(6, call, uneven, type), Reduction::kSum);
        group.all_reduce(x).wait();
        require(same_bits(x, expected), fmt::format("all_reduce of {}", uneven));
      }
    }
  });
}

TEST(NodeLevels, ManySumsMayBeInFlight) {
  run_on_nodes(6, 2, [](Communicator& group) {
    std::vector<Tensor> sums;
    std::vector<Pending> pending;
    for (int call = 0; call < 40; ++call) {
      sums.push_back(term_of(group.rank(), call, 5000, at::kFloat));
      pending.push_back(group.all_reduce(sums.back()));
    }
    for (int call = 0; call < 40; ++call) {
      pending[static_cast<size_t>(call)].wait();
      require(same_bits(sums[static_cast<size_t>(call)], tree_of(terms_of(6, call, 5000, at::kFloat), Reduction::kSum)),
              fmt::format("sum {}", call));
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
