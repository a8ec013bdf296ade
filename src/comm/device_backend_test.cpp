#include "comm/device_backend.h"

#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/error.h"
#include "comm/thread_ranks.h"

namespace athanor::comm::device_backend_test {
namespace {

using namespace std::chrono_literals;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceBackend, AnAbsentOneSaysWhatToBuildAgainst) {
  for (const auto& [device, name] :
       {std::pair{c10::DeviceType::CUDA, "NCCL"}, std::pair{c10::DeviceType::XPU, "XCCL"}}) {
    if (have_device_backend(device)) continue;
    run_ranks(2, [&](World& world) {
      const std::string error = error_of([&] { DeviceGroups(world, c10::Device(device, 0)); });
      EXPECT_NE(error.find(name), std::string::npos) << error;
      EXPECT_NE(error.find("build against"), std::string::npos) << error;
    });
  }
}

TEST(DeviceBackend, ADeviceWithoutCollectivesIsRefusedByName) {
  run_ranks(2, [](World& world) {
    const std::string error = error_of([&] { DeviceGroups(world, c10::Device(c10::DeviceType::CPU)); });
    EXPECT_NE(error.find("cpu"), std::string::npos) << error;
  });
}

TEST(DeviceBackend, AGroupOfOneNeedsNone) {
  run_ranks(1, [](World& world) {
    DeviceGroups groups(world, c10::Device(c10::DeviceType::CUDA, 0));
    EXPECT_EQ(groups.make_group({{0}}, "alone")->size(), 1);
  });
}

TEST(DeviceBackend, AllRanksMeetAtTheStoreOfRankZero) {
  run_ranks(3, [](World& world) {
    const auto store = open_store(world, 20s);
    store->set(std::to_string(world.rank()), std::vector<uint8_t>{static_cast<uint8_t>(10 + world.rank())});
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(store->get(std::to_string(rank)).at(0), 10 + rank);
    world.all().barrier();  // rank 0 serves until all have read
  });
}

TEST(DeviceBackend, RanksOfAHostAreNumbered) {
  run_ranks(3, [](World& world) { EXPECT_EQ(index_on_host(world), world.rank()); });
}

}  // namespace
}  // namespace athanor::comm::device_backend_test
