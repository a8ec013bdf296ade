
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <set>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "base/text.h"
#include "comm/thread_ranks.h"
#include "memory/memory_remedies.h"
#include "memory/preflight.h"
#include "train/testing/device_case.h"

namespace athanor::memory_remedies_test {
namespace {

// So large that the buffers of communicators, which further ranks add, are a small part.
RunConfig sparse_case() {
  RunConfig config = small_device_run("olmoe", "bfloat16");
  config.model.hidden_size = 2048;
  config.model.intermediate_size = 1024;
  config.model.num_attention_heads = config.model.num_key_value_heads = 16;
  config.model.num_hidden_layers = 12;
  config.model.num_experts = 16;
  config.model.vocab_size = 50000;
  config.data.seq_len = 1024;
  config.train.global_batch_size = 32;
  config.topology.ranks_per_node = 8;
  return config;
}

double need_of_fullest(const RunConfig& config, int ranks) {
  const Layout layout(config, ranks);
  const PlannedPlace place = device_place(config, planned_hosts(config.topology, ranks));
  double most = 0;
  for (const int rank : layout.group_of(GroupKind::kPipeline, 0))
    most = std::max(most, memory_of_rank(config, layout, rank, place).total());
  return most;
}

const PlannedPlace kCuda{ops::PlayedPlace::kCuda};

struct Changed {
  int ranks;
  double need;
};

// All layouts of up to 16 ranks in which one of expert, tensor and pipeline degree differs from 1 at most.
std::vector<Changed> all_layouts(const RunConfig& config) {
  std::vector<Changed> all;
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (const auto degree : {&ParallelismConfig::expert_parallel_degree, &ParallelismConfig::tensor_parallel_degree,
                              &ParallelismConfig::pipeline_parallel_degree}) {
      for (int value = 1; value <= ranks; ++value) {
        RunConfig changed = config;
        changed.parallelism.*degree = value;
        if (find_layout_faults(changed, ranks).empty()) all.push_back({ranks, need_of_fullest(changed, ranks)});
      }
    }
  }
  return all;
}

TEST(RankRemedies, HaveTheFewestRanksWithWhichEachRankFits) {
  const RunConfig config = sparse_case();
  const double now = need_of_fullest(config, 1);
  const auto all = all_layouts(config);
  std::set<std::string> axes;
  for (double share = 0.95; share > 0.1; share -= 0.05) {
    const double bytes = share * now;
    const auto found = fewest_ranks(config, {.bytes = bytes, .place = kCuda});
    int fewest = INT_MAX;
    for (const Changed& each : all)
      if (each.need <= bytes) fewest = std::min(fewest, each.ranks);
    ASSERT_EQ(found.has_value(), fewest < INT_MAX) << share;
    if (!found) continue;
    EXPECT_EQ(found->ranks, fewest) << share << ": " << found->setting;
    EXPECT_EQ(found->need_bytes, need_of_fullest(found->config, found->ranks));
    EXPECT_LE(found->need_bytes, bytes);
    axes.insert(found->setting.substr(0, found->setting.find(' ')));
  }
  EXPECT_GE(axes.size(), 3u) << join(std::vector<std::string>(axes.begin(), axes.end()), ", ");
}

TEST(RankRemedies, MayBeAnotherLayoutOfAsManyRanks) {
  RunConfig config = sparse_case();
  config.parallelism.sharding = "none";
  const double now = need_of_fullest(config, 4);
  const auto found = fewest_ranks(config, {.ranks = 4, .ranks_of_host = 4, .bytes = 0.9 * now, .place = kCuda});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->setting, "parallelism.expert_parallel_degree = 2");
  EXPECT_EQ(found->text(4), fmt::format("the same 4 ranks with {} ({} on each)", found->setting,
                                        format_bytes(need_of_fullest(found->config, 4))));
  // A shard degree that is set has to change along with one that takes ranks from it.
  config.model.num_experts = config.model.num_experts_per_tok = 0;
  config.moe = {};
  config.model.family = "llama";
  config.parallelism.data_parallel_shard_degree = 4;
  const auto dense =
      fewest_ranks(config, {.ranks = 4, .ranks_of_host = 4, .bytes = 0.8 * need_of_fullest(config, 4), .place = kCuda});
  ASSERT_TRUE(dense);
  EXPECT_EQ(dense->setting, "parallelism.tensor_parallel_degree = 2 and parallelism.data_parallel_shard_degree = 2");
  EXPECT_EQ(dense->ranks, 4);
}

TEST(RankRemedies, AreNotOfferedWhereNoLayoutFits) {
  EXPECT_FALSE(fewest_ranks(sparse_case(), {.bytes = 1000, .place = kCuda}));
  EXPECT_SAYS(what_would_fit(sparse_case(), 1000), "no number of ranks along one axis: a smaller model would");
}

TEST(RankRemedies, AreAmongWhatWouldFitWithAndWithoutTheSettings) {
  RunConfig config = sparse_case();
  config.train.micro_batch_size = 8;
  const double now = need_of_fullest(config, 1);
  const auto alone = fewest_ranks(config, {.bytes = 0.9 * now, .place = kCuda});
  ASSERT_TRUE(alone);
  EXPECT_SAYS(what_would_fit(config, 0.9 * now), " or " + alone->text(1) + " would fit");
  double least = now;
  for (const Changed& each : all_layouts(config)) least = std::min(least, each.need);
  EXPECT_SAYS(what_would_fit(config, 0.7 * least), "parallelism.recompute = [\"layer\"] and ");
  EXPECT_SAYS(what_would_fit(config, 0.7 * least), " together on ");
}

// Several TB of experts: a job of many hosts with such memory would hold them.
TEST(RankRemedies, AreOfferedForTheMemoryOfAHostAsWell) {
  RunConfig config = sparse_case();
  config.topology.ranks_per_node = 0;
  config.model.num_experts = 4096;
  config.train.global_batch_size = 4096;
  comm::run_ranks(2, [&](comm::World& world) {
    try {
      check_memory(config, world, Layout(config, 2), at::kCPU);
      ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
      const std::string said = error.what();
      EXPECT_SAYS(said, " ranks with parallelism.");
      EXPECT_SAYS(said, "at most 2 of them on a host like this, would fit");
    }
  });
}

}  // namespace
}  // namespace athanor::memory_remedies_test
