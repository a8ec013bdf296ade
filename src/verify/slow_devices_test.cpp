// Slow ranks are found by the time for which their devices computed.

#include <gtest/gtest.h>

#include "parallel/testing/small_layouts.h"
#include "verify/testing/device_layouts.h"
#include "watch/slow_ranks.h"

namespace athanor::slow_devices_test {
namespace {

constexpr int kSlow = 2;

RunConfig config_of(const Degrees& degrees) {
  RunConfig c = small_device_run("llama", "float32");
  c.model.hidden_size = 32;
  c.data.seq_len = 8;
  c.train.steps = 2;
  c.train.global_batch_size = 2 * degrees.replicate * degrees.shard;  // two microbatches, so that two stages overlap
  c.train.micro_batch_size = 1;
  set_degrees(c, degrees);
  c.parallelism.bucket_mb = 0.02;
  return c;
}

/// What each rank reports of the last step.
struct Steps {
  std::vector<double> device_s;
  std::vector<int> stages;
  std::vector<int64_t> waits;  ///< all ranks' together, in each step
};

// Trains on guarded devices, of which one takes `slower` times as long for everything.
Steps train(const Degrees& degrees, bool timed, double slower) {
  const RunConfig config = config_of(degrees);
  const int size = degrees.world();
  Steps steps{std::vector<double>(static_cast<size_t>(size), -1), std::vector<int>(static_cast<size_t>(size)), {}};
  comm::run_device_ranks(size, [&](comm::World& world, at::Device device) {
    guarded::queues().keep_time(world.rank() == kSlow ? slower : 1);
    Mesh mesh(Layout(config, size), world);
    mesh.use(device);
    TrainStateOptions options;
    options.device = device;
    TrainState state(config, {}, mesh, std::move(options));
    initialize_parameters(config.model, 1, state.model.parameters);
    if (timed) state.compute_clock = ComputeClock::of(mesh, device);
    for (int64_t step = 1; step <= config.train.steps; ++step) {
      world.all().barrier();
      const auto before = ops::transfer_counts();
      world.all().barrier();
      const StepReport report = train_step(state, make_verify_batch(config, step, 1));
      world.all().barrier();
      if (world.rank() == 0) steps.waits.push_back((ops::transfer_counts() - before).waits);
      steps.device_s[static_cast<size_t>(world.rank())] = report.device_s.value_or(-1);
    }
    steps.stages[static_cast<size_t>(world.rank())] = mesh.layout().coordinate(world.rank(), Axis::kPipeline);
    state.model.gatherer.wait_all();
    guarded::queues().synchronize_all();
    world.all().barrier();
    guarded::queues().keep_time(0);
  });
  return steps;
}

TEST(SlowDevices, TheSlowOneIsNamedAndThoseThatWaitForItAreNot) {
  for (const Degrees& degrees :
       {Degrees{1, 4, 1, "optimizer"}, Degrees{1, 3, 1, "none"}, Degrees{2, 2, 1, "hierarchical"},
        Degrees{1, 3, 1, "ep_aware", 1, 2}, Degrees{1, 2, 1, "optimizer", 2, 1}}) {
    const Steps steps = train(degrees, true, 2);
    const auto slow = find_slow_ranks(steps.device_s, steps.stages);
    ASSERT_EQ(slow.size(), 1u) << degrees.text();
    EXPECT_EQ(slow[0].rank, kSlow) << degrees.text();
    const Steps equal = train(degrees, true, 1);
    EXPECT_TRUE(find_slow_ranks(equal.device_s, equal.stages).empty()) << degrees.text();
    // Its time is twice what it is without the fault, and that of the others is the same as without it.
    for (size_t rank = 0; rank < steps.device_s.size(); ++rank) {
      EXPECT_GT(equal.device_s[rank], 0);
      EXPECT_NEAR(steps.device_s[rank], (rank == kSlow ? 2 : 1) * equal.device_s[rank], 1e-9)
          << degrees.text() << ", rank " << rank;
    }
  }
}

TEST(SlowDevices, TheHostsWaitNoMoreForDevicesThatAreTimed) {
  const Degrees degrees{1, 4, 1, "optimizer"};
  const Steps timed = train(degrees, true, 2), untimed = train(degrees, false, 2);
  EXPECT_EQ(timed.waits, untimed.waits);
  EXPECT_EQ(timed.waits, (std::vector<int64_t>{4, 4}));
  for (const double device_s : untimed.device_s) EXPECT_EQ(device_s, -1);
}

}  // namespace
}  // namespace athanor::slow_devices_test
