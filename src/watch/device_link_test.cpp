#include "watch/device_link.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "comm/testing/guarded_groups.h"
#include "ops/transfer.h"
#include "train/testing/layout_cases.h"
#include "watch/probe.h"

namespace athanor::device_link_test {
namespace {

TEST(NeighbourWaves, EachRankIsFirstOnceAndInOnePairAtATime) {
  for (int size = 1; size <= 9; ++size) {
    std::map<int, int> times_first;
    for (int wave = 0; wave < kNumWaves; ++wave) {
      for (int rank = 0; rank < size; ++rank) {
        const auto [with, begins] = neighbour_in(wave, rank, size);
        if (with < 0) continue;
        const auto other = neighbour_in(wave, with, size);
        EXPECT_EQ(other.with, rank);
        EXPECT_NE(other.begins, begins);
        if (!begins) continue;
        EXPECT_EQ(with, (rank + 1) % size);
        ++times_first[rank];
      }
    }
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(times_first[rank], size > 1 ? 1 : 0);
  }
}

struct Measured {
  std::vector<double> mb_s;
  GroupKind group = GroupKind::kWorld;
  int64_t waits = 0;
};

Measured measure(const LayoutCase& layout, int slow = -1) {
  const RunConfig config = config_with(layout);
  Measured measured;
  measured.mb_s.resize(static_cast<size_t>(layout.ranks()));
  comm::run_device_ranks(layout.ranks(), [&](comm::World& world, at::Device device) {
    guarded::queues().keep_time(world.rank() == slow ? 10 : 1);
    Mesh mesh(Layout(config, layout.ranks()), world);
    mesh.use(device);
    world.all().barrier();
    const auto before = ops::transfer_counts();
    world.all().barrier();
    measured.mb_s[static_cast<size_t>(world.rank())] = measure_device_link(mesh, device);
    world.all().barrier();
    if (world.rank() == 0) {
      measured.group = device_link_group(mesh);
      measured.waits = (ops::transfer_counts() - before).waits;
    }
    guarded::queues().synchronize_all();
    world.all().barrier();
    guarded::queues().keep_time(0);
  });
  return measured;
}

TEST(DeviceLink, EachRankMeasuresItInTheLargerOfTheGroupsThatEveryStepSumsOver) {
  const auto data = measure({.name = "", .data = 3, .tensor = 2}),
             model = measure({.name = "", .tensor = 2, .pipeline = 2});
  EXPECT_EQ(data.group, GroupKind::kData);
  EXPECT_EQ(model.group, GroupKind::kModel);
  for (const auto* each : {&data, &model})
    for (const double mb_s : each->mb_s) EXPECT_GT(mb_s, 0);
}

TEST(DeviceLink, TheHostWaitsOnce) { EXPECT_EQ(measure({.name = "", .data = 4}).waits, 4); }

TEST(DeviceLink, ThereIsNoneForARankAloneAndOnCpus) {
  EXPECT_TRUE(std::isnan(measure({.name = ""}).mb_s[0]));
  const RunConfig config = config_with({.name = "", .data = 2});
  comm::run_ranks(2, [&](comm::World& world) {
    const Mesh mesh(Layout(config, 2), world);
    EXPECT_TRUE(std::isnan(measure_device_link(mesh, at::kCPU)));
  });
}

TEST(DeviceLink, BothEndsOfALinkThatIsSlowAreTheOnesThatAreNamed) {
  const auto measured = measure({.name = "", .data = 7}, /*slow=*/2);
  Probe probe;
  probe.device_link_mb_s = measured.mb_s;
  std::vector<int> ranks;
  for (const SlowPart& part : find_slow_parts(probe)) {
    EXPECT_EQ(part.what, "messages between devices");
    ranks.push_back(part.rank);
  }
  EXPECT_EQ(ranks, (std::vector<int>{1, 2}));  // the one before it, and itself
}

}  // namespace
}  // namespace athanor::device_link_test
