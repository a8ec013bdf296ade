// Tests that a start refuses local checkpoints that its host's memory cannot hold, and counts none that are on a disk.

#include "run/checkpoint_memory.h"

#include "base/files.h"
#include "saves/testing/ranks.h"

namespace athanor::checkpoint_memory_test {
namespace {

class CheckpointMemory : public Ranks {
 protected:
  // Two nodes, and a model whose checkpoint no host holds: its embedding has 2^40 rows.
  void check_with(const std::string& local_dir) const {
    RunConfig c = config({1, 2, 1, "ep_aware"}, "run");
    c.checkpoint.local_interval = 1;
    c.model.vocab_size = int64_t{1} << 40;
    comm::run_ranks(2, [&](comm::World& world) {
      LocalStart local{RankNodes(world.hosts(), 1)};
      local.place.emplace(LocalRun{"0123456789abcdef", folder_ / "run", local_dir}, local.nodes.name_of(world.rank()));
      check_checkpoint_memory(c, world, local, at::Device(at::kCPU));
    });
  }
};

TEST_F(CheckpointMemory, LocalCheckpointsInMemoryThatDoNotFitAreRefusedWithThePartsOfTheNeed) {
  ASSERT_TRUE(is_in_memory("/dev/shm"));
  const std::string refusal = message_of<ConfigError>([&] { check_with("/dev/shm/athanor-nowhere"); });
  EXPECT_SAYS(refusal, " of memory free, and this run needs ");
  EXPECT_SAYS(refusal, " to compute, ");
  EXPECT_SAYS(refusal,
              " for local checkpoints; let checkpoint.local_dir be on a disk, or set "
              "checkpoint.local_interval to 0");
  EXPECT_EQ(refusal.find("copies to write"), std::string::npos) << refusal;
}

TEST_F(CheckpointMemory, OnADiskTheyTakeNone) { EXPECT_NO_THROW(check_with("/proc")); }

}  // namespace
}  // namespace athanor::checkpoint_memory_test
