#include "layout/traffic.h"

#include <gtest/gtest.h>

#include <map>

namespace athanor::traffic_test {
namespace {

RunConfig config_of(int shard, int expert, const std::string& mapping) {
  RunConfig config;
  config.model.num_experts = 16;
  config.model.num_experts_per_tok = 2;
  config.parallelism.data_parallel_shard_degree = shard;
  config.parallelism.expert_parallel_degree = expert;
  config.parallelism.mapping = mapping;
  config.train.global_batch_size = 4 * shard;
  config.topology = {.ranks_per_node = 2, .nodes_per_supernode = 2};
  return config;
}

std::map<std::string, StepTraffic> table_of(const RunConfig& config, int world_size) {
  const Layout layout(config, world_size);
  std::map<std::string, StepTraffic> table;
  for (auto& line : count_step_traffic(config, layout, 512, supernodes_of(config.topology, world_size))) {
    table[line.what.name()] = line;
  }
  return table;
}

// BaGuaLu §4.2: sixteen ranks in supernodes of four, with four expert ranks.
TEST(Traffic, ExpertInnerKeepsTokensInsideAndPaysOutsideForTheExpertsGradients) {
  const auto table = table_of(config_of(16, 4, "expert_inner"), 16);
  EXPECT_GT(table.at("tokens").inside, 0);
  EXPECT_EQ(table.at("tokens").outside, 0);
  EXPECT_EQ(table.at("expert gradients").inside, 0);
  EXPECT_GT(table.at("expert gradients").outside, 0);
  EXPECT_EQ(table.at("expert weights").inside, 0);
}

TEST(Traffic, DataInnerKeepsTheExpertsGradientsInsideAndSendsTokensOut) {
  const auto table = table_of(config_of(16, 4, "data_inner"), 16);
  EXPECT_EQ(table.at("tokens").inside, 0);
  EXPECT_GT(table.at("tokens").outside, 0);
  EXPECT_GT(table.at("expert gradients").inside, 0);
  EXPECT_EQ(table.at("expert gradients").outside, 0);
  EXPECT_EQ(table.at("expert weights").outside, 0);
}

TEST(Traffic, AMappingMovesBytesAndChangesNone) {
  for (const char* sharding : {"none", "optimizer", "ep_aware", "hierarchical"}) {
    auto inner = config_of(12, 4, "expert_inner"), outer = config_of(12, 4, "data_inner");
    inner.parallelism.sharding = outer.parallelism.sharding = sharding;
    const auto a = table_of(inner, 12), b = table_of(outer, 12);
    for (const auto& [what, traffic] : a) {
      const auto& other = b.at(what);
      EXPECT_NEAR(traffic.inside + traffic.outside, other.inside + other.outside, 1e-9 * (other.inside + other.outside))
          << what << " " << sharding;
    }
    if (sharding == std::string("optimizer")) continue;  // its dense gradients are gathered in the expert group too
    EXPECT_EQ(a.at("dense gradients").inside, b.at("dense gradients").inside) << sharding;
  }
}

// Computed by hand: 4 ranks, E = 2, EPSO, bf16 weights, fp32 gradients.
TEST(Traffic, FollowsTheFormulas) {
  const auto config = config_of(4, 2, "expert_inner");
  const auto held = count_held_elements(config.model, 2);
  const auto table = table_of(config, 4);
  const auto total = [&](const char* what) { return table.at(what).inside + table.at(what).outside; };
  EXPECT_DOUBLE_EQ(total("dense gradients"), 4.0 * static_cast<double>(held.dense) * 3);  // b · (n − 1)/n on n ranks
  EXPECT_DOUBLE_EQ(total("dense weights"), 2.0 * static_cast<double>(held.dense) * 3);
  EXPECT_DOUBLE_EQ(total("expert gradients"), 2 * 4.0 * static_cast<double>(held.expert));
  const double reached = 1 - (8.0 * 7) / (16 * 15), tokens = 16 * 512;
  const double choices = 8 * 2 * 2 / 2 + 4 * 2;  // to the experts, and their gradients back
  EXPECT_NEAR(total("tokens"), (4 * 256 * 2.0 + choices) * tokens * reached * 4, 1e-3 * total("tokens"));
}

TEST(Traffic, NoShardingGathersNoWeightsAndReducesTwice) {
  auto config = config_of(4, 1, "expert_inner");
  config.parallelism.sharding = "none";
  const auto table = table_of(config, 4);
  EXPECT_FALSE(table.contains("dense weights"));
  EXPECT_DOUBLE_EQ(table.at("dense gradients").inside,
                   2 * 4.0 * 3 * static_cast<double>(count_held_elements(config.model, 1).dense));
  EXPECT_FALSE(table.contains("tokens"));
}

TEST(Traffic, AnyOfTheOwnedExpertsIsDrawnAsCombinatoricsSay) {
  EXPECT_DOUBLE_EQ(probability_of_any(4, 1, 1), 0.25);
  EXPECT_DOUBLE_EQ(probability_of_any(4, 2, 2), 1 - 1.0 / 6);
  EXPECT_DOUBLE_EQ(probability_of_any(4, 3, 2), 1);  // two of four, one of which the rank owns in any case
  EXPECT_DOUBLE_EQ(probability_of_any(4, 4, 1), 1);
}

TEST(Traffic, SupernodesAreRunsOfNodes) {
  EXPECT_EQ(supernodes_of({.ranks_per_node = 2, .nodes_per_supernode = 2}, 6), (std::vector<int>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(supernodes_of({}, 3), (std::vector<int>{0, 0, 0}));
}

}  // namespace
}  // namespace athanor::traffic_test
