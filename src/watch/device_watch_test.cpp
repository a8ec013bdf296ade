#include "watch/device_watch.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "comm/testing/guarded_groups.h"
#include "train/testing/device_case.h"

namespace athanor::device_watch_test {
namespace {

Layout two_data_ranks() {
  RunConfig config = small_device_run("llama", "float32");
  config.parallelism.data_parallel_shard_degree = 2;
  return Layout(config, 2);
}

// Returns what rank 0 reports of a step of two ranks, of which rank 1 does `misbehave`. Rank 0 begins the step once
// rank 1 has done that, and rank 1 stays until rank 0 has reported, however slow the machine is.
// @param timeout  of the hosts' collectives; it passes only if a rank does not come.
std::string told(const std::function<void(Mesh&, DeviceWatch&, const at::Tensor&)>& misbehave,
                 std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
  comm::WorldOptions options;
  options.timeout = timeout;
  std::latch both_run(2);
  std::promise<void> has_misbehaved, is_told;
  std::string told;
  try {
    comm::run_device_ranks(
        2,
        [&](comm::World& world, at::Device device) {
          both_run.arrive_and_wait();
          Mesh mesh(two_data_ranks(), world);
          mesh.use(device);
          DeviceWatch watch(mesh, device, 0.5);
          const at::Tensor x = at::ones({8}).to(device);
          if (world.rank() == 1) {
            misbehave(mesh, watch, x);
            has_misbehaved.set_value();
            is_told.get_future().wait_for(std::chrono::minutes(2));
            guarded::queues().forget_all();
            return;
          }
          has_misbehaved.get_future().wait_for(std::chrono::minutes(2));
          mesh.group(GroupKind::kData).all_reduce(x).wait();
          watch.step_is_queued();
          try {
            ops::fetch(x);
          } catch (const CommError& error) {
            told = error.what();
          }
          is_told.set_value();
          guarded::queues().forget_all();
        },
        options);
  } catch (const std::exception&) {
    // What rank 1 meets at its end does not matter.
  }
  return told;
}

TEST(DeviceWatch, OnDevicesARankWhoseHostDoesNotComeIsNamed) {
  const std::string text = told([](Mesh&, DeviceWatch&, const at::Tensor&) {}, std::chrono::milliseconds(1500));
  EXPECT_NE(text.find("missing: rank 1 ("), text.npos) << text;
}

TEST(DeviceWatch, OnDevicesACollectiveThatIsNotCompleteAlthoughAllHaveQueuedIsNamed) {
  const std::string text = told([](Mesh&, DeviceWatch& watch, const at::Tensor&) { watch.step_is_queued(); });
  EXPECT_NE(text.find("guarded:0 has not completed all_reduce of 32"), text.npos) << text;
  EXPECT_NE(text.find("of group data after"), text.npos) << text;
}

TEST(DeviceWatch, OnDevicesAnErrorOfTheLibraryNamesTheDeviceTheRankAndTheCall) {
  const std::string text = told([](Mesh& mesh, DeviceWatch& watch, const at::Tensor& x) {
    mesh.group(GroupKind::kData).all_reduce(x.narrow(0, 0, 2)).wait();  // another size
    watch.step_is_queued();
  });
  EXPECT_NE(text.find("guarded:0 of rank 0 ("), text.npos) << text;
}

}  // namespace
}  // namespace athanor::device_watch_test
