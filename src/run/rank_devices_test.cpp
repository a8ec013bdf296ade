#include "run/rank_devices.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "comm/testing/guarded_groups.h"
#include "train/testing/device_case.h"

namespace athanor::rank_devices_test {
namespace {

const std::vector<std::string> kHosts = {"a", "a", "b", "b"};

std::vector<RankDevice> four_gpus() {
  std::vector<RankDevice> ranks;
  for (int r = 0; r < 4; ++r) ranks.push_back({"cuda", "H200", std::to_string(r % 2), "athanor 1", ""});
  return ranks;
}
std::string faults_of(const std::vector<RankDevice>& ranks) { return join(find_device_faults(ranks, kHosts), "\n"); }

TEST(RankDevices, FourGpusOfOneModelAreOneJob) { EXPECT_EQ(faults_of(four_gpus()), ""); }

TEST(RankDevices, RanksOnCpusShareThem) {
  EXPECT_EQ(faults_of(std::vector<RankDevice>(4, RankDevice{"cpu", "", "", "athanor 1", ""})), "");
}

TEST(RankDevices, TheFaultsOfAllRanksAreNamedAtOnce) {
  auto ranks = four_gpus();
  ranks[1] = {"", "", "", "athanor 1", "no GPU is visible to this process"};
  ranks[2] = {"xpu", "Max 1550", "0", "athanor 2", ""};
  EXPECT_EQ(
      faults_of(ranks),
      "rank 1 (a): no GPU is visible to this process\n"
      "one job needs one build of the program on all ranks: athanor 1 on ranks 0 (a), 1 (a), 3 (b); athanor 2 on "
      "rank 2 (b)\n"
      "the ranks of a job need devices of one kind; choose one with train.device: cuda on ranks 0 (a), 3 (b); xpu "
      "on rank 2 (b)\n"
      "the ranks of a job need devices of one model; ask the scheduler for nodes of one kind: H200 on ranks 0 (a), "
      "3 (b); Max 1550 on rank 2 (b)");
}

TEST(RankDevices, TwoRanksOfAHostCannotShareADevice) {
  auto ranks = four_gpus();
  ranks[3].id = "0";
  EXPECT_EQ(faults_of(ranks),
            "ranks 2 (b), 3 (b) share one device; start one rank for each device, or set "
            "train.device = \"cpu\"");
}

TEST(RankDevices, AFaultOfThousandsOfRanksIsOneLine) {
  std::vector<RankDevice> ranks(5000, RankDevice{"", "", "", "athanor 1", "this machine has no NVIDIA driver"});
  const auto faults = find_device_faults(ranks, std::vector<std::string>(5000, "n"));
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0], "ranks 0 (n), 1 (n), 2 (n), 3 (n) and 4996 more: this machine has no NVIDIA driver");
}

TEST(RankDevices, AFaultTooLongForTheGatherIsCutAndStillNamesItsRanks) {
  if (at::hasXPU()) GTEST_SKIP() << "this machine has an XPU device";
  std::string setting = "--device ";
  for (int i = 0; i < 900; ++i) setting += "ä\"";
  for (const size_t more : {0, 1, 2, 3}) {  // the cut is inside and between characters
    comm::run_ranks(2, [&](comm::World& world) {
      try {
        agree_on_devices("xpu", std::string(more, '.') + setting, world);
        ATHANOR_ASSERT(false);
      } catch (const ConfigError& error) {
        const std::string said = error.what();
        ATHANOR_ASSERT(said.starts_with("ranks 0 (") && said.find("--device ä\"ä") != said.npos);
      }
    });
  }
}

TEST(RankDevices, EachRankTakesTheDeviceOfItsPlaceOnItsHost) {
  guarded::offer(true);
  comm::run_device_ranks(3, [](comm::World& world, at::Device device) {
    RunConfig config;
    config.train.device = "auto";
    ATHANOR_ASSERT(agree_on_devices(config, world) == device);
    ATHANOR_ASSERT(guarded::current_device() == world.rank());
  });
  guarded::offer(false);
}

TEST(RankDevices, OneRankMoreThanTheDevicesOfAHostIsRefusedOnAllRanks) {
  guarded::offer(true);
  std::atomic<int> num_refused{0};
  comm::run_ranks(guarded::kMostDevices + 1, [&](comm::World& world) {
    RunConfig config;
    config.train.device = "auto";
    try {
      agree_on_devices(config, world);
    } catch (const ConfigError& error) {
      ATHANOR_ASSERT(std::string(error.what()).find("17 ranks run on this host, and 16 devices are visible") !=
                     std::string::npos);
      ++num_refused;
    }
  });
  EXPECT_EQ(num_refused, guarded::kMostDevices + 1);
  guarded::offer(false);
}

}  // namespace
}  // namespace athanor::rank_devices_test
