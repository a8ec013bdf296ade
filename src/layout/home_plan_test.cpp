// Homes of matrices: how evenly the work of real models is shared, and that all ranks find the same plan.

#include "layout/home_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "config/toml_reader.h"
#include "layout/holding.h"
#include "layout/parameter_groups.h"

namespace athanor::home_plan_test {
namespace {

// What a rank holds, with its plan.
struct RankPlan {
  RankPlan(const RunConfig& config, const Layout& layout, int rank) {
    table = make_bucket_entries(held_parameters(config.model, config.parallelism, layout, rank));
    const ShardingKind kind = config.parallelism.sharding;
    buckets = lay_out_buckets(table, make_sharding(layout, rank, kind, bucket_elements(config)));
    plan = plan_homes(
        {table, buckets, layout, rank, kind, [](const BucketEntry& entry) { return is_muon_role(entry.role); }});
  }

  std::vector<BucketEntry> table;
  std::vector<Bucket> buckets;
  HomePlan plan;
};

TEST(AssignHomes, TheMostWorkComesFirstAndGoesWhereThereIsTheLeast) {
  const std::vector<std::vector<int>> candidates = {{0, 1, 2}, {1, 2}};
  EXPECT_EQ(assign_homes({{2, 0}, {9, 0}, {3, 1}, {3, 1}}, candidates), (std::vector<int>{1, 0, 1, 2}));
  EXPECT_EQ(assign_homes({{1, 1}, {1, 1}, {1, 1}}, candidates), (std::vector<int>{1, 2, 1}));
  EXPECT_TRUE(assign_homes({}, candidates).empty());
}

TEST(PartsOfTensorRanks, AreWhatTheRanksHold) {
  const RunConfig config = parse_run_config(
      "model.family = \"qwen3_moe\"\nmodel.hidden_size = 48\nmodel.num_attention_heads = 12\n"
      "model.num_key_value_heads = 2\nmodel.num_hidden_layers = 1\nmodel.num_experts = 4\n"
      "model.moe_intermediate_size = 24\nmodel.vocab_size = 50\nparallelism.tensor_parallel_degree = 4\n",
      "run.toml");
  const Layout layout(config, 4);
  std::vector<std::vector<BucketEntry>> of_ranks;
  for (int rank = 0; rank < 4; ++rank)
    of_ranks.push_back(make_bucket_entries(held_parameters(config.model, config.parallelism, layout, rank)));
  int cut = 0;
  for (size_t i = 0; i < of_ranks[0].size(); ++i) {
    if (cut_dim_of_matrix(of_ranks[0][i]) < 0) continue;
    std::vector<TensorPart> held;
    for (const auto& table : of_ranks) {
      const auto dim = first_matrix_dim(table[i]) + static_cast<size_t>(cut_dim_of_matrix(table[i]));
      held.push_back({table[i].offset[dim], table[i].extent[dim]});
    }
    for (const auto& table : of_ranks) EXPECT_EQ(parts_of_tensor_ranks(table[i], 4), held) << table[i].name;
    ++cut;
  }
  EXPECT_EQ(cut, 9);  // embedding, output, four of attention, three of experts
}

TEST(HomePlan, NoRankOfMula7BAndQwen3With30BHasMoreThan15PercentAboveTheMean) {
  for (const char* recipe : {"recipes/mula-7b-a1b.toml", "recipes/qwen3-30b-a3b.toml"}) {
    const char* source = std::getenv("ATHANOR_SOURCE_DIR");
    if (!source) GTEST_SKIP() << "ATHANOR_SOURCE_DIR is not set, so there are no recipes";
    RunConfig config = load_run_config(std::string(source) + "/" + recipe);
    auto& p = config.parallelism;
    p = {};
    p.data_parallel_shard_degree = 8, p.expert_parallel_degree = 4, p.sharding = "ep_aware";
    const Layout layout(config, 8);
    const RankPlan first(config, layout, 0);
    const auto& work = first.plan.work;
    const double mean = std::accumulate(work.begin(), work.end(), 0.0) / static_cast<double>(work.size());
    const double largest = *std::ranges::max_element(work) / mean;
    EXPECT_LT(largest, 1.15) << recipe;
    RecordProperty(recipe, std::to_string(largest));
  }
}

RunConfig small_config(int replicate, int shard, int expert, int tensor, int pipeline, const std::string& sharding) {
  RunConfig config;
  config.model.family = "olmoe";
  config.model.hidden_size = 32;
  config.model.num_hidden_layers = 3;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 2;  // fewer than tensor ranks
  config.model.intermediate_size = 16;
  config.model.num_experts = 4;
  config.model.num_experts_per_tok = 2;
  config.model.vocab_size = 62;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 12;
  auto& p = config.parallelism;
  p.data_parallel_replicate_degree = replicate, p.data_parallel_shard_degree = shard;
  p.expert_parallel_degree = expert, p.tensor_parallel_degree = tensor, p.pipeline_parallel_degree = pipeline;
  p.sharding = sharding;
  return config;
}

TEST(HomePlan, AllRanksHaveTheSameHomesAndEachMatrixHasOne) {
  for (const auto& config : {small_config(1, 4, 2, 1, 1, "optimizer"), small_config(2, 2, 4, 1, 1, "hierarchical"),
                             small_config(1, 2, 2, 4, 1, "ep_aware"), small_config(1, 2, 1, 2, 3, "none")}) {
    const auto& p = config.parallelism;
    const int world = static_cast<int>(p.data_parallel_replicate_degree * p.data_parallel_shard_degree *
                                       p.tensor_parallel_degree * p.pipeline_parallel_degree);
    const Layout layout(config, world);
    std::map<std::string, std::pair<int, int>> homes;
    std::map<std::string, int> owners;
    int64_t sent = 0, received = 0;
    for (int rank = 0; rank < world; ++rank) {
      const RankPlan of(config, layout, rank);
      for (const HomeMatrix& matrix : of.plan.matrices) {
        const bool stacked = matrix.entry->global_shape.size() > 2;
        const int64_t each = matrix.held.size(),
                      expert =
                          stacked ? matrix.entry->offset[0] + (matrix.held.begin - matrix.entry->flat_begin) / each : 0;
        const std::string name = fmt::format("{} {}", matrix.entry->name, expert);
        const auto [found, is_new] = homes.try_emplace(name, matrix.home_data, matrix.home_tensor);
        EXPECT_EQ(found->second, std::pair(matrix.home_data, matrix.home_tensor)) << name;
        owners[name] += of.plan.is_home(matrix) ? 1 : 0;
      }
      const auto count = [&](const HomeTransfer& each, int own, int64_t elements) {
        sent += each.from == own ? elements : 0;
        received += each.to == own ? elements : 0;
      };
      const auto part = [&](const HomeTransfer& each, int whose) {
        const auto shape = of.plan.matrices[each.matrix].part_shape(whose);
        return shape[0] * shape[1];
      };
      for (const auto* list : {&of.plan.to_home_data, &of.plan.from_home_data})
        for (const HomeTransfer& each : *list) count(each, of.plan.data_index, each.range.size());
      for (const HomeTransfer& each : of.plan.to_home_tensor) count(each, of.plan.tensor_index, part(each, each.from));
      for (const HomeTransfer& each : of.plan.from_home_tensor) count(each, of.plan.tensor_index, part(each, each.to));
    }
    for (const auto& [name, count] : owners) EXPECT_EQ(count, 1) << name;
    EXPECT_EQ(sent, received);
    EXPECT_EQ(std::ssize(owners), 3 * (4 + 3 * 4));
  }
}

TEST(HomePlan, AStackOfOneExpertHasTheRowsAndColumnsOfItsMatrix) {
  RunConfig config = small_config(1, 2, 1, 2, 1, "optimizer");
  config.model.num_experts = config.model.num_experts_per_tok = 1;
  const Layout layout(config, 4);
  int stacked = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const RankPlan of(config, layout, rank);
    for (const HomeMatrix& matrix : of.plan.matrices) {
      const auto& shape = matrix.entry->global_shape;
      EXPECT_EQ((std::vector{matrix.rows, matrix.columns}), (std::vector{shape[shape.size() - 2], shape.back()}))
          << matrix.entry->name;
      stacked += shape.size() > 2;
    }
  }
  EXPECT_EQ(stacked, 4 * 3 * 3);
}

}  // namespace
}  // namespace athanor::home_plan_test
