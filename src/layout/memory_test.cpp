#include "layout/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "arch/inventory.h"
#include "layout/traffic.h"

namespace athanor::memory_test {
namespace {

RunConfig olmoe(int replicate, int shard, int expert, const char* sharding) {
  RunConfig config;
  config.model.num_experts = 48;
  config.model.num_experts_per_tok = 4;
  config.parallelism.data_parallel_replicate_degree = replicate;
  config.parallelism.data_parallel_shard_degree = shard;
  config.parallelism.expert_parallel_degree = expert;
  config.parallelism.sharding = sharding;
  config.train.global_batch_size = 4 * replicate * shard;
  return config;
}

StateBytes state_of(const RunConfig& config) {
  const auto& p = config.parallelism;
  const Layout layout(config, static_cast<int>(p.data_parallel_replicate_degree * p.data_parallel_shard_degree));
  return count_state_bytes(count_held_elements(config.model, layout.expert()), count_state_shards(p, layout),
                           config.train.dtype == "bfloat16", declare_optimizer(config.optimizer.name));
}

// The whole model's: 2 + 2 bytes of master, 8 of moments, 4 of gradient for each parameter, or 4 + 8 + 4 in fp32.
TEST(StateBytes, OfOneRankAreSixteenForEachParameter) {
  for (const char* sharding : {"none", "optimizer", "ep_aware", "hierarchical"}) {
    for (const char* dtype : {"bfloat16", "float32"}) {
      auto config = olmoe(1, 1, 1, sharding);
      config.train.dtype = dtype;
      EXPECT_EQ(state_of(config).total(), 16 * count_parameters(config.model)) << sharding << " " << dtype;
    }
  }
}

TEST(StateBytes, ExpertsAreSharedByTheExpertDegree) {
  const auto model = olmoe(1, 1, 1, "none").model;
  const auto whole = count_held_elements(model, 1), fourth = count_held_elements(model, 4);
  EXPECT_EQ(whole.total(), count_parameters(model));
  EXPECT_EQ(fourth.dense, whole.dense);
  EXPECT_EQ(fourth.expert * 4, whole.expert);
}

// Shards of dense and expert state by hand, D = 12, E = 4, so e_s = gcd(4, shard).
TEST(StateBytes, FollowTheTableOfShardings) {
  struct Row {
    const char* sharding;
    int replicate, shard;
    int64_t dense, expert;
  };
  for (const auto& row :
       {Row{"none", 1, 12, 1, 1}, Row{"optimizer", 1, 12, 3, 3}, Row{"ep_aware", 1, 12, 12, 3},
        Row{"ep_aware", 6, 2, 12, 3}, Row{"hierarchical", 1, 12, 12, 3}, Row{"hierarchical", 2, 6, 6, 3},
        Row{"hierarchical", 4, 3, 3, 3}, Row{"hierarchical", 6, 2, 2, 1}, Row{"hierarchical", 12, 1, 1, 1}}) {
    const auto config = olmoe(row.replicate, row.shard, 4, row.sharding);
    const auto shards = count_state_shards(config.parallelism, Layout(config, 12));
    EXPECT_EQ(shards.dense, row.dense) << row.sharding << " " << row.shard;
    EXPECT_EQ(shards.expert, row.expert) << row.sharding << " " << row.shard;
    const auto held = count_held_elements(config.model, 4);
    const auto bytes = state_of(config);
    EXPECT_EQ(bytes.weights, 2 * held.total());
    EXPECT_EQ(bytes.gradient, 4 * held.total());
    EXPECT_EQ(bytes.optimizer, 8 * ((held.dense + row.dense - 1) / row.dense + held.expert / row.expert));
    EXPECT_EQ(bytes.master * 4, bytes.optimizer);
  }
}

// Held by one rank of each pipeline and tensor coordinate, and of each expert one: together the whole model, and what
// several hold, as often.
TEST(StateBytes, OfTheRanksOfAModelAddUpToIt) {
  for (const int64_t tensor : {1, 2, 4}) {
    auto config = olmoe(1, 1, 1, "ep_aware");
    config.model.num_key_value_heads = 2;  // four ranks hold each twice
    config.parallelism.tensor_parallel_degree = tensor;
    config.parallelism.pipeline_parallel_degree = 2;
    config.parallelism.data_parallel_shard_degree = 4;
    config.parallelism.expert_parallel_degree = 4;
    config.train.global_batch_size = 32;
    const Layout layout(config, static_cast<int>(8 * tensor));
    std::map<Replication, int64_t> sum;
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      for (const auto& [replication, elements] : count_held_by_replication(config, layout, rank))
        sum[replication] += elements / (replication.is_expert() ? 1 : layout.data());
    }
    if (tensor > 1) sum[Replication::kReplicated] /= tensor;
    if (tensor > 2) sum[Replication::kKeyValue] /= 2;
    int64_t total = 0;
    for (const auto& [replication, elements] : sum) total += elements;
    EXPECT_EQ(total, count_parameters(config.model)) << tensor;
  }
}

// AdamW: master and two moments in fp32 are 12 bytes for each parameter.
TEST(WrittenBytes, OfAllRanksAreTheCheckpointWhoeverWritesAndTheFirstOfEqualOwnersHasAll) {
  for (const char* sharding : {"none", "optimizer", "ep_aware", "hierarchical"}) {
    const RunConfig config = olmoe(3, 4, 4, sharding);
    const Layout layout(config, 12);
    const auto all = 12 * static_cast<double>(count_parameters(config.model));
    for (const Writers writers : {Writers::kScattered, Writers::kFirst}) {
      double sum = 0;
      const std::vector<double> bytes = count_written_bytes(config, layout, writers);
      ASSERT_EQ(bytes.size(), 12U);
      for (const double each : bytes) sum += each;
      // A share is rounded once and each sum once: fewer than 100 roundings.
      EXPECT_NEAR(sum, all, 100 * all * std::numeric_limits<double>::epsilon()) << sharding;
      for (size_t rank = 0; rank < bytes.size(); ++rank) {
        // The first owners are the first four ranks: one for each expert of a group, or the first replica. Experts
        // have one owner under the other shardings.
        const bool few = std::string(sharding) == "none" || std::string(sharding) == "hierarchical";
        const bool none = writers == Writers::kFirst && few && rank >= 4;
        EXPECT_EQ(bytes[rank] == 0, none) << sharding << " rank " << rank;
      }
    }
  }
}

TEST(MemoryNeed, OfTheCopyForCheckpointsIsWhatTheRankWrites) {
  for (const char* sharding : {"none", "optimizer", "ep_aware", "hierarchical"}) {
    for (const char* writers : {"scattered", "first"}) {
      RunConfig config = olmoe(3, 4, 4, sharding);
      config.checkpoint.writers = writers;
      const Layout layout(config, 12);
      const auto bytes = count_written_bytes(config, layout, value_of<Writers>(writers));
      for (int rank = 0; rank < 12; ++rank) {
        const double staging = count_staging_bytes(config, layout, rank, plan_optimizers(config.optimizer));
        EXPECT_NEAR(staging, bytes[static_cast<size_t>(rank)], 100 * staging * std::numeric_limits<double>::epsilon());
      }
    }
  }
}

// Optimus §3.2: with EPSO the dense state falls with E too, where SO keeps E copies of it.
TEST(StateBytes, EpAwareShardingHoldsTheDenseStateOnceWhereTheOptimizersHoldsItETimes) {
  const auto so = state_of(olmoe(1, 8, 4, "optimizer")), epso = state_of(olmoe(1, 8, 4, "ep_aware"));
  const auto held = count_held_elements(olmoe(1, 8, 4, "ep_aware").model, 4);
  ASSERT_EQ(held.dense % 8, 0);
  EXPECT_EQ(so.total() - epso.total(), 10 * (held.dense / 2 - held.dense / 8));
}

// Two optimizers: experts keep 4 bytes for each element and 2 for each matrix, all others what AdamW keeps.
TEST(StateBytes, FollowWhatEachOptimizerDeclaresForItsGroups) {
  using Extent = StateKind::Extent;
  const auto config = olmoe(1, 8, 4, "ep_aware");
  const Layout layout(config, 8);
  OptimizerPlan plan = plan_optimizers(config.optimizer);
  plan.groups.insert(plan.groups.begin(), {.patterns = {"*.experts.*"}, .optimizer = "other"});
  plan.optimizers.push_back({.name = "other",
                             .state = {{"momentum"},
                                       {"scale", StateType::kBFloat16, Extent::kMatrix},
                                       {"count", StateType::kFloat32, Extent::kScalar}}});
  const auto held = count_held_by_optimizer(config, layout, 0, plan);
  EXPECT_EQ(held.at("other").dense, 0);
  EXPECT_EQ(held.at("other").expert, count_held_elements(config.model, 4).expert);
  EXPECT_EQ(held.at("other").matrices, 3 * config.model.num_hidden_layers * 48 / 4);
  EXPECT_EQ(held.at("adamw").dense, count_held_elements(config.model, 4).dense);
  const StateBytes bytes = count_state_bytes(config, layout, 0, plan);
  EXPECT_EQ(bytes.optimizer,
            8 * (held.at("adamw").dense / 8) + 4 * (held.at("other").expert / 2) + 2 * held.at("other").matrices + 4);
  EXPECT_EQ(bytes.weights, state_of(config).weights);

  const auto names = plan.tensor_names(config.model);
  const auto has = [&](const char* name) { return std::ranges::find(names, name) != names.end(); };
  EXPECT_TRUE(has("exp_avg_sq/model.norm.weight") && has("scale/model.layers.0.mlp.experts.up_proj.weight"));
  EXPECT_TRUE(has("count"));
  EXPECT_FALSE(has("exp_avg/model.layers.0.mlp.experts.up_proj.weight"));
}

}  // namespace
}  // namespace athanor::memory_test
