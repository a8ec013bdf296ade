#include "plan/rank_traffic.h"

#include <gtest/gtest.h>

#include <map>

#include "plan/rank_memory.h"

namespace athanor::rank_traffic_test {
namespace {

RunConfig config_of(int shard, int expert, const std::string& mapping) {
  RunConfig config;
  config.model.num_experts = 16;
  config.model.num_experts_per_tok = 2;
  config.parallelism.data_parallel_shard_degree = shard;
  config.parallelism.expert_parallel_degree = expert;
  config.parallelism.mapping = mapping;
  config.train.global_batch_size = 4 * shard;
  config.train.micro_batch_size = 1;
  config.data.seq_len = 512;
  config.moe.dispatch = "all_to_all";
  config.topology = {.ranks_per_node = 2, .nodes_per_supernode = 2};
  return config;
}

std::map<std::string, StepTraffic> table_of(const RunConfig& config, int world_size) {
  const Layout layout(config, world_size);
  std::map<std::string, StepTraffic> table;
  const std::vector<std::vector<RankTraffic>> sent = {plan_rank(config, layout, 0).sent};
  for (auto& line : count_step_traffic(layout, sent, supernodes_of(config.topology, world_size)))
    table[line.what] = line;
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
TEST(Traffic, FollowsFromTheSizes) {
  const auto config = config_of(4, 2, "expert_inner");
  const auto held = count_held_elements(config.model, 2);
  const auto table = table_of(config, 4);
  const auto total = [&](const char* what) { return table.at(what).inside + table.at(what).outside; };
  EXPECT_NEAR(total("dense gradients") / (4.0 * static_cast<double>(held.dense) * 3), 1,
              1e-3);  // b · (n − 1)/n on n ranks
  EXPECT_NEAR(total("dense weights") / (2.0 * static_cast<double>(held.dense) * 3), 1, 1e-3);
  EXPECT_NEAR(total("expert gradients") / (2 * 4.0 * static_cast<double>(held.expert)), 1, 1e-3);
  const double reached = 1 - (8.0 * 7) / (16 * 15), tokens = 16 * 512;
  const double choices = 8 * 2 * 2 / 2 + 4 * 2;  // to the experts, and their gradients back
  EXPECT_NEAR(total("tokens"), (4 * 256 * 2.0 + choices) * tokens * reached * 4,
              2e-3 * total("tokens"));  // rows are whole numbers
}

TEST(Traffic, NoShardingGathersNoWeightsAndReducesTwice) {
  auto config = config_of(4, 1, "expert_inner");
  config.parallelism.sharding = "none";
  const auto table = table_of(config, 4);
  EXPECT_FALSE(table.contains("dense weights"));
  const auto held = static_cast<double>(count_held_elements(config.model, 1).dense);
  EXPECT_NEAR(table.at("dense gradients").inside / (2 * 4.0 * 3 * held), 1, 1e-3);
  EXPECT_FALSE(table.contains("tokens"));
}

// Each microbatch sends as much; gradients and weights are sent once.
TEST(Traffic, OfAStepFollowsFromFewerMicrobatches) {
  auto config = config_of(4, 2, "expert_inner");
  const auto few = table_of(config, 4);
  config.train.global_batch_size *= 8;
  const auto many = table_of(config, 4);
  const auto total = [](const auto& table, const char* what) { return table.at(what).inside + table.at(what).outside; };
  EXPECT_DOUBLE_EQ(total(many, "tokens"), 8 * total(few, "tokens"));
  for (const char* what : {"dense gradients", "expert gradients", "dense weights", "losses"})
    EXPECT_DOUBLE_EQ(total(many, what), total(few, what)) << what;
}

TEST(Traffic, OfASecondBackwardIsThatOfTheFirstDividedByItsInterval) {
  auto config = config_of(4, 2, "expert_inner");
  const auto plain = plan_rank(config, Layout(config, 4), 0).sent;
  EXPECT_TRUE(traffic_of_second_backward(plain, config).empty());
  config.optimizer.name = "sophiag";
  config.optimizer.hessian_interval = 10;
  const auto sent = plan_rank(config, Layout(config, 4), 0).sent, second = traffic_of_second_backward(sent, config);
  const auto bytes = [](const std::vector<RankTraffic>& lines, TrafficPurpose purpose) {
    double sum = 0;
    for (const RankTraffic& line : lines) sum += line.purpose == purpose ? line.bytes : 0;
    return sum;
  };
  for (const TrafficPurpose purpose : {TrafficPurpose::kGradients, TrafficPurpose::kTokens}) {
    EXPECT_DOUBLE_EQ(bytes(sent, purpose), bytes(plain, purpose)) << purpose_name(purpose);
    EXPECT_DOUBLE_EQ(bytes(second, purpose), bytes(plain, purpose) / 10) << purpose_name(purpose);
  }
  EXPECT_EQ(bytes(second, TrafficPurpose::kWeights), 0);
}

}  // namespace
}  // namespace athanor::rank_traffic_test
