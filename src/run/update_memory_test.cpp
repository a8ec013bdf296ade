// The memory that an update of Muon takes for a time, in dry runs and in the check before a run.

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "base/text.h"
#include "comm/thread_ranks.h"
#include "layout/memory.h"
#include "memory/device_memory.h"
#include "memory/memory_remedies.h"
#include "memory/preflight.h"
#include "parallel/testing/small_layouts.h"
#include "plan/rank_memory.h"
#include "run/dry_run.h"
#include "train/testing/device_case.h"

namespace athanor::update_memory_test {
namespace {

// Wide, with few and short sequences: an update of Muon holds more than the activations.
RunConfig wide_case(const Degrees& degrees, const std::string& products = "bfloat16") {
  RunConfig config = small_device_run("olmoe", "bfloat16");
  config.model.hidden_size = 256;
  config.model.intermediate_size = 128;
  config.model.num_hidden_layers = 4;
  config.data.seq_len = 16;
  config.moe.balance = "swipe";
  config.train.global_batch_size = 8;
  config.train.micro_batch_size = 1;
  config.train.num_threads = 1;
  config.optimizer.name = "muon";
  config.optimizer.newton_schulz_dtype = products;
  set_degrees(config, degrees);
  return config;
}

const std::vector<Degrees> kLayouts = {{1, 1, 1, "none"},
                                       {1, 4, 2, "ep_aware"},
                                       {2, 2, 2, "hierarchical"},
                                       {1, 2, 1, "optimizer", 2, 1},
                                       {1, 2, 2, "ep_aware", 1, 2}};

TEST(UpdateMemory, OfTheCheckBeforeARunIsThatOfTheDryRun) {
  for (const Degrees& degrees : kLayouts) {
    for (const char* device : {"cpu", "cuda"}) {
      RunConfig config = wide_case(degrees);
      config.train.device = device;
      const int size = degrees.world();
      const Layout layout(config, size);
      for (int rank = 0; rank < size; ++rank) {
        const MemoryNeed need = memory_of_rank(config, layout, rank, planned_place(config, size));
        const DryRun dry = dry_run(config, size, rank);
        EXPECT_GT(need.update_bytes, 0);
        EXPECT_EQ(need.update_bytes, dry.need.update_bytes) << device << ", rank " << rank << " of " << size;
        EXPECT_TRUE(need.update_is_peak());
        EXPECT_EQ(need.total(), dry.need.total());
      }
    }
  }
}

TEST(UpdateMemory, IsNothingWithOptimizersThatHoldNoWholeMatrices) {
  for (const char* name : {"adamw", "sgd", "lamb", "sophiag"}) {
    RunConfig config = wide_case({1, 4, 2, "ep_aware"});
    config.optimizer.name = name;
    EXPECT_EQ(memory_of_rank(config, Layout(config, 4), 0).update_bytes, 0) << name;
  }
}

std::string refusal_of(const RunConfig& config) {
  std::string said;
  comm::run_ranks(1, [&](comm::World& world) {
    try {
      check_memory(config, world, Layout(config, 1), at::kCPU);
    } catch (const ConfigError& error) {
      said = error.what();
    }
  });
  return said;
}

// The layers of a model this wide fit into the memory of no host.
TEST(UpdateMemory, ThatDoesNotFitIsRefusedBeforeTheFirstStepAndNamed) {
  RunConfig config = wide_case({1, 1, 1, "none"});
  EXPECT_EQ(refusal_of(config), "");
  config.model.hidden_size = int64_t{1} << 20;
  const std::string said = refusal_of(config);
  const MemoryNeed need = memory_of_rank(config, Layout(config, 1), 0);
  EXPECT_EQ(said.find('\n'), said.npos) << said;
  EXPECT_SAYS(said, format_bytes(need.update_bytes) + " of whole matrices in Muon's update");
  EXPECT_SAYS(said, "more ranks share the matrices of Muon's update");
  config.optimizer.name = "adamw";
  EXPECT_EQ(refusal_of(config).find("Muon"), std::string::npos);
}

TEST(UpdateMemory, DecidesOnADeviceWhetherARunFits) {
  const RunConfig config = wide_case({1, 1, 1, "none"});
  const MemoryNeed need = need_of_device(config, {});
  const double without = need.total() - need.update_bytes + need.activation_bytes + need.transient_bytes;
  ASSERT_LT(without, need.total());
  const std::string said = find_lacking_memory(config, {{need.total(), without}}, {"a"}, at::kCUDA);
  EXPECT_SAYS(said, format_bytes(need.update_bytes) + " of whole matrices in Muon's update");
  EXPECT_EQ(said.find("train.micro_batch_size = "), std::string::npos) << said;
}

}  // namespace
}  // namespace athanor::update_memory_test
