#include "launch/rank_count.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::launch {
namespace rank_count_test {

using Counts = std::vector<int>;

Allocation hosts(const Counts& slots) {
  Allocation made;
  made.hosts_from = "the list";
  for (size_t i = 0; i < slots.size(); ++i) made.hosts.push_back({"n" + std::to_string(i + 1), slots[i]});
  return made;
}

const NodeOffer kTwelve{12, "one for each of 12 devices"};

Counts count(const RankRequest& request, const Allocation& allocation,
             const std::optional<NodeOffer>& offer = kTwelve) {
  return count_ranks(request, allocation, offer).of_host;
}
std::string refused(const RankRequest& request, const Allocation& allocation,
                    const std::optional<NodeOffer>& offer = kTwelve) {
  return refusal<ConfigError>([&] { count_ranks(request, allocation, offer); });
}

TEST(RankCount, ByDefaultThereIsOneForEachDeviceOfEachHost) {
  EXPECT_EQ(count({}, hosts({0, 0, 0})), (Counts{12, 12, 12}));
  EXPECT_SAYS(refused({}, hosts({0, 0}), {}),
              "the number of ranks is not known: this machine is none of 2 hosts: n1, n2");
}

TEST(RankCount, SlotsComeBeforeDevices) {
  EXPECT_EQ(count({}, hosts({4, 2, 1})), (Counts{4, 2, 1}));
  EXPECT_EQ(count({.ranks = 5}, hosts({4, 2, 1})), (Counts{4, 1}));
  EXPECT_FALSE(count_ranks({}, hosts({2, 4}), {}).is_regular());
  EXPECT_TRUE(count_ranks({}, hosts({4, 4, 1}), {}).is_regular());
}

TEST(RankCount, AGivenTotalTakesAsManyHostsAsItNeeds) {
  EXPECT_EQ(count({.ranks = 24}, hosts({0, 0, 0})), (Counts{12, 12}));
  EXPECT_EQ(count({.ranks = 13}, hosts({0, 0})), (Counts{12, 1}));
  EXPECT_EQ(count({.ranks = 30}, hosts({0, 0})), (Counts{15, 15}));  // more than devices: the user's wish
  EXPECT_EQ(count({.ranks = 4, .per_node = {}, .has_nodes = true}, hosts({0, 0, 0})), (Counts{2, 1, 1}));
}

TEST(RankCount, NumbersThatContradictEachOtherAreRefusedWithAll) {
  EXPECT_EQ(count({.ranks = 7, .per_node = 4}, hosts({0, 0})), (Counts{4, 3}));
  EXPECT_SAYS(refused({.ranks = 9, .per_node = 4}, hosts({0, 0})),
              "-n 9 and --ppn 4 contradict each other: 2 hosts with 4 ranks each have 8");
  EXPECT_SAYS(refused({.ranks = 4, .per_node = 4, .has_nodes = true}, hosts({0, 0})),
              "-n 4, --ppn 4 and --nodes 2 contradict each other: 4 ranks fill 1 host;");
  EXPECT_SAYS(refused({.ranks = 1, .per_node = {}, .has_nodes = true}, hosts({0, 0})), "each node needs a rank");
}

TEST(RankCount, MoreRanksThanSlotsAreRefused) {
  EXPECT_SAYS(refused({.ranks = 8}, hosts({4, 2, 1})), "-n 8: there are only 7 slots on 3 hosts (the list)");
  EXPECT_SAYS(refused({.ranks = {}, .per_node = 4}, hosts({4, 2})),
              "4 ranks on n2 are more than its 2 slots (the list)");
}

}  // namespace rank_count_test
}  // namespace athanor::launch
