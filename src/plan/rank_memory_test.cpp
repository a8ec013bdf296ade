#include "plan/rank_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "layout/communicator_memory.h"
#include "plan/played_step.h"
#include "train/testing/memory_cases.h"

namespace athanor::rank_memory_test {
namespace {

constexpr double kKiB = 1 << 10, kMiB = 1 << 20;
const PlannedPlace kCuda{ops::PlayedPlace::kCuda}, kXpu{ops::PlayedPlace::kOther};

// The check before a run plays as many microbatches as differ.
TEST(MemoryOfRank, IsThatOfAStepWithAllMicrobatches) {
  at::set_num_threads(1);
  for (const char* schedule : {"1f1b", "interleaved_1f1b", "gpipe"}) {
    const bool interleaves = std::string(schedule) == "interleaved_1f1b";
    const RunConfig config = memory_config(MemoryRanks{.name = schedule,
                                                       .moe = false,
                                                       .pipeline = 2,
                                                       .schedule = schedule,
                                                       .virtual_stages = interleaves ? 2 : 1,
                                                       .micro_batch_size = 1,
                                                       .microbatches = 16});
    for (int rank = 0; rank < 2; ++rank) {
      const MemoryNeed need = memory_of_rank(config, Layout(config, 2), rank);
      const auto all = play_step(config, {2, rank});
      EXPECT_EQ(need.state_bytes, static_cast<double>(all->kept_bytes)) << schedule;
      EXPECT_NEAR(need.passing_bytes() / static_cast<double>(all->passing_bytes()), 1, 1e-3) << schedule << rank;
    }
  }
}

TEST(MemoryOfRank, IsLessWhereActivationsAreComputedAgain) {
  RunConfig config = memory_config(MemoryCase{"olmoe", {}});
  const double kept = memory_of_rank(config, Layout(config, 1), 0).activation_bytes;
  config.parallelism.recompute = {"norm", "attention", "moe"};
  EXPECT_LT(memory_of_rank(config, Layout(config, 1), 0).activation_bytes, 0.5 * kept);
}

// Each of several threads has scratch memory, whatever this machine is.
TEST(MemoryOfRank, OfAPlannedHostDependsOnItsThreadsAndNotOnThisMachine) {
  RunConfig config = memory_config(MemoryCase{"llama", {"layer"}}, {.layers = 1, .micro_batch_size = 32});
  const auto need = [&](int threads, int threads_here) {
    at::set_num_threads(threads_here);
    config.train.num_threads = threads;
    return memory_of_rank(config, Layout(config, 1), 0, planned_place(config, 1)).total();
  };
  EXPECT_EQ(need(1, 1), need(1, 2));
  EXPECT_GT(need(64, 1), need(1, 1));
  at::set_num_threads(1);
}

TEST(MemoryOfRank, IsPlannedForADeviceIfTheConfigurationNamesOne) {
  RunConfig config;
  for (const char* name : {"cuda", "xpu", "cpu", "auto"}) {
    config.train.device = name;
    EXPECT_EQ(planned_place(config, 8).on_device(), name[0] == 'x' || name == std::string("cuda")) << name;
  }
}

TEST(MemoryOfRank, OfGraphsIsWhatRunsNextToOne) {
  RunConfig config = memory_config(MemoryCase{"olmoe", {}});
  const auto need = [&] { return memory_of_rank(config, Layout(config, 1), 0, kCuda); };
  const MemoryNeed without = need();
  EXPECT_EQ(without.graph_bytes, 0);
  config.train.cuda_graphs = true;
  const auto layers = static_cast<double>(config.model.num_hidden_layers);
  EXPECT_EQ(need().graph_bytes, without.transient_bytes + without.activation_bytes / layers);  // validation
  config.metrics.layer_statistics = 10;  // a microbatch that is observed runs without the graph, which stays
  EXPECT_EQ(need().graph_bytes, without.transient_bytes + without.activation_bytes);
  RunConfig two = memory_config(MemoryRanks{.name = "two", .data = 2});
  two.train.cuda_graphs = true;  // several ranks record none
  EXPECT_EQ(memory_of_rank(two, Layout(two, 2), 0, kCuda).graph_bytes, 0);
}

TEST(MemoryOfRank, OnADeviceHasWhatNoTensorIs) {
  const RunConfig config = memory_config(MemoryRanks{.name = "two", .data = 2});
  const auto need = [&](const PlannedPlace& place) { return memory_of_rank(config, Layout(config, 2), 0, place); };
  EXPECT_EQ(need({}).communicator_bytes + need({}).allocator_bytes + need({}).workspace_bytes, 0);
  const MemoryNeed there = need(kCuda);
  EXPECT_EQ(there.allocator_bytes, count_allocator_bytes(there.activation_bytes + there.transient_bytes));
  EXPECT_GT(there.communicator_bytes, 0);
  EXPECT_EQ(there.workspace_bytes, 2 * 32 * kMiB);
  EXPECT_EQ(there.total(), there.state_bytes + there.activation_bytes + there.transient_bytes +
                               there.communicator_bytes + there.allocator_bytes + there.workspace_bytes);
}

TEST(MemoryOfRank, HasTwoWorkspacesOfCublasAndTwoMoreWithAGraph) {
  RunConfig config = memory_config(MemoryCase{"llama", {}});
  const auto bytes = [&](const PlannedPlace& place) {
    return memory_of_rank(config, Layout(config, 1), 0, place).workspace_bytes;
  };
  EXPECT_EQ(bytes(kCuda), 2 * 32 * kMiB);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  EXPECT_EQ(bytes(kCuda), 2 * 128 * kKiB);
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
  config.train.cuda_graphs = true;
  EXPECT_EQ(bytes(kCuda), 4 * 32 * kMiB);
  EXPECT_EQ(bytes(kXpu), 0);
}

// Without the libraries of CUDA attention keeps and takes other tensors.
TEST(MemoryOfRank, OnAnXpuIsThatOfLibtorchsOwnOps) {
  const RunConfig config = memory_config(MemoryCase{"olmoe", {}});
  const MemoryNeed cuda = memory_of_rank(config, Layout(config, 1), 0, kCuda),
                   xpu = memory_of_rank(config, Layout(config, 1), 0, kXpu);
  EXPECT_EQ(cuda.state_bytes, xpu.state_bytes);
  EXPECT_GT(xpu.transient_bytes, cuda.transient_bytes);
}

TEST(MemoryOfRank, RefusesAMicrobatchThatNobodyMeans) {
  RunConfig config = memory_config(MemoryCase{"llama", {}});
  config.train.micro_batch_size = config.train.global_batch_size = int64_t{1} << 40;
  try {
    memory_of_rank(config, Layout(config, 1), 0);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_SAYS(std::string(error.what()), "train.micro_batch_size");
  }
}

TEST(RanksThatDiffer, AreTheFirstOfTheStagesWithTheSameParts) {
  RunConfig config = memory_config(MemoryRanks{.name = "pipeline", .moe = false, .tensor = 2, .pipeline = 4});
  config.model.num_hidden_layers = 8;
  const Layout layout(config, 8);
  const auto ranks = ranks_that_differ(config, layout);  // with the embedding, inside, with the head
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_EQ(layout.coordinate(ranks[1], Axis::kPipeline), 1);
  EXPECT_EQ(layout.coordinate(ranks[2], Axis::kPipeline), 3);
  double most = 0;
  for (int rank = 0; rank < 8; ++rank) most = std::max(most, memory_of_rank(config, layout, rank, kCuda).total());
  EXPECT_EQ(fullest_plan(config, layout, kCuda).need.total(), most);
}

}  // namespace
}  // namespace athanor::rank_memory_test
