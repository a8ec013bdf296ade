#include "watch/probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/testing/folder_test.h"
#include "comm/thread_ranks.h"
#include "guarded/device.h"
#include "train/testing/layout_cases.h"

namespace athanor::probe_test {
namespace {

class Probes : public FolderTest {};

TEST_F(Probes, EachRankMeasuresItsMessagesToTheNextAndOneRankOfANodeItsDisk) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    const RunConfig config = config_with({.name = "", .data = ranks});
    comm::run_ranks(ranks, [&](comm::World& world) {
      Mesh mesh(Layout(config, ranks), world);
      const Probe probe = measure_probe(mesh, at::kCPU, folder_.string());
      EXPECT_EQ(probe.gemm_gflops.empty(), world.rank() != 0);
      if (world.rank() != 0) return;
      for (const auto* values : {&probe.gemm_gflops, &probe.memory_gb_s, &probe.ping_us, &probe.link_mb_s}) {
        const bool needs_others = values == &probe.ping_us || values == &probe.link_mb_s;
        ASSERT_EQ(std::ssize(*values), ranks);
        for (const double value : *values) EXPECT_EQ(value > 0, ranks > 1 || !needs_others) << ranks;
      }
      for (const double value : probe.device_link_mb_s) EXPECT_TRUE(std::isnan(value));
      EXPECT_GT(probe.disk_ms[0], 0);
      for (size_t rank = 1; rank < probe.disk_ms.size(); ++rank) EXPECT_TRUE(std::isnan(probe.disk_ms[rank]));
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
  }
}

TEST_F(Probes, ADiskThatCannotBeWrittenIsNotMeasured) {
  const RunConfig config = config_with({.name = ""});
  comm::run_ranks(1, [&](comm::World& world) {
    Mesh mesh(Layout(config, 1), world);
    EXPECT_TRUE(std::isnan(measure_probe(mesh, at::kCPU, (folder_ / "nowhere").string()).disk_ms[0]));
  });
}

TEST(OnDeviceProbe, ProductsAndMemoryAreThoseOfTheDevice) {
  const RunConfig config = config_with({.name = ""});
  comm::run_ranks(1, [&](comm::World& world) {
    Mesh mesh(Layout(config, 1), world);
    const Probe probe = measure_probe(mesh, guarded::device_of_tests(), ".");
    EXPECT_GT(probe.gemm_gflops[0], 0);
    EXPECT_GT(probe.memory_gb_s[0], 0);
  });
}

// Eight ranks on four equal hosts.
Probe equal_ranks() {
  const double none = std::nan("");
  return {std::vector<double>(8, 100),
          std::vector<double>(8, 20),
          std::vector<double>(8, 5),
          std::vector<double>(8, 900),
          std::vector<double>(8, 25000),
          {4, none, 4, none, 5, none, 4, none},
          0.1};
}
const std::vector<std::string> kHosts{"a", "a", "b", "b", "c", "c", "d", "d"};

TEST(SlowParts, NoneIsFoundAmongRanksThatDifferAsMachinesDo) {
  Probe probe = equal_ranks();
  probe.gemm_gflops[3] = 80;
  probe.ping_us[4] = 12;
  EXPECT_TRUE(find_slow_parts(probe).empty());
  EXPECT_EQ(describe_slow_parts({}, kHosts), "");
}

TEST(SlowParts, ARankFarBelowTheOthersIsNamedForEachQuantity) {
  Probe probe = equal_ranks();
  probe.gemm_gflops[3] = 60;
  probe.memory_gb_s[1] = 10;
  probe.ping_us[4] = 16;
  probe.link_mb_s[7] = 200;
  probe.device_link_mb_s[5] = 8000;
  probe.disk_ms[2] = 40;
  const auto slow = find_slow_parts(probe);
  std::vector<int> ranks;
  for (const SlowPart& part : slow) ranks.push_back(part.rank);
  EXPECT_EQ(ranks, (std::vector<int>{3, 1, 4, 7, 5, 2}));
  const std::string line = describe_slow_parts(slow, kHosts);
  EXPECT_SAYS(line, "rank 3 (b): products 60 GFLOP/s, the median is 100; ");
  EXPECT_SAYS(line, "and 2 more");
  const auto json = nlohmann::json::parse(probe_json(probe, slow, kHosts, 2, 40, "asked"));
  EXPECT_EQ(json.at("disk_ms"), nlohmann::json::parse("[4.0, null, 40.0, null, 5.0, null, 4.0, null]"));
  EXPECT_EQ(json.at("slow").at(5).at("host"), "b");
  EXPECT_EQ(json.at("why"), "asked");
}

// The last rank of each host has the next one on another host, to which messages take longer than within a host.
TEST(SlowParts, MessagesBetweenHostsAreComparedWithOneAnother) {
  Probe probe = equal_ranks();
  probe.next_is_away = probe.next_device_is_away = {0, 1, 0, 1, 0, 1, 0, 1};
  for (const size_t rank : {1, 3, 5, 7}) {
    probe.ping_us[rank] = 50;
    probe.device_link_mb_s[rank] = 2000;
  }
  EXPECT_TRUE(find_slow_parts(probe).empty());
  probe.device_link_mb_s[3] = 600;
  probe.ping_us[4] = 20;
  const auto slow = find_slow_parts(probe);
  ASSERT_EQ(slow.size(), 2u);
  EXPECT_EQ(slow[0].rank, 4);
  EXPECT_EQ(slow[0].median, 5);
  EXPECT_EQ(slow[1].rank, 3);
  EXPECT_EQ(slow[1].median, 2000);
}

TEST(SlowParts, TwoRanksShowNothing) {
  Probe probe{{100, 10}, {20, 20}, {5, 5}, {900, 900}, {25000, 100}, {4, 400}, 0.1};
  EXPECT_TRUE(find_slow_parts(probe).empty());
}

}  // namespace
}  // namespace athanor::probe_test
