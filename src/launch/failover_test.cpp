#include "launch/failover.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace athanor::launch {
namespace failover_test {

using Hosts = std::vector<std::string>;

FailoverState state_of(int spares = 2) {
  FailoverState state{{"n1", "n2", "n3"}, {}, 0, 0, 0, 0};
  for (int i = 1; i <= spares; ++i) state.spares.push_back(fmt::format("s{}", i));
  return state;
}
const FailoverLimits kAll{5, true, 10, {}};

bool is_stopped(const FailoverDecision& decision, const std::string& part) {
  return !decision.retries && decision.reason.find(part) != std::string::npos;
}

TEST(Failover, WhatNeitherTimeNorASwapCuresStopsAtOnceWhateverIsLeft) {
  int stopped = 0;
  for (const CauseRow& row : cause_table()) {
    if (row.time != Cure::kNo || row.swap != Cure::kNo) continue;
    const auto decision = decide_failover(state_of(), {row.cause, {"n2"}, true}, kAll);
    EXPECT_FALSE(decision.retries) << row.kind;
    EXPECT_TRUE(decision.swapped.empty()) << row.kind;
    ++stopped;
  }
  EXPECT_EQ(stopped, 9);
}

TEST(Failover, ABadNodeIsReplacedInItsPlaceAndTheOthersKeepTheirs) {
  for (const Cause cause : {Cause::kBadNode, Cause::kSoftFailure, Cause::kSilentHang, Cause::kStuckPreTraining}) {
    const auto decision = decide_failover(state_of(), {cause, {"n2"}, cause != Cause::kStuckPreTraining}, kAll);
    ASSERT_TRUE(decision.retries);
    EXPECT_EQ(decision.next.hosts, (Hosts{"n1", "s1", "n3"}));
    EXPECT_EQ(decision.next.spares, Hosts{"s2"});
    EXPECT_EQ(decision.wait_s, 0);
    EXPECT_EQ(decision.next.swaps, 1);
    EXPECT_EQ(decision.next.retries, 0);
  }
}

TEST(Failover, OnlyNodesAtFaultAreEverTakenOut) {
  for (const CauseRow& row : cause_table())
    for (const Hosts& named : {Hosts{}, Hosts{"n3"}, Hosts{"n9"}, Hosts{"n3", "n3", "n1"}})
      for (const bool made_progress : {false, true})
        for (const int spares : {0, 1, 5}) {
          const FailoverState before = state_of(spares);
          const auto decision = decide_failover(before, {row.cause, named, made_progress}, kAll);
          if (!decision.retries) continue;
          ASSERT_EQ(decision.next.hosts.size(), 3u);
          for (size_t i = 0; i < 3; ++i) {
            const std::string& host = before.hosts[i];
            const bool is_named = std::ranges::find(named, host) != named.end();
            const bool is_blind = row.cause == Cause::kSilentHang && i == 0 && named.size() < 3 && !is_named;
            if (!is_named && !is_blind) {
              EXPECT_EQ(decision.next.hosts[i], host) << row.kind;
            }
          }
          EXPECT_EQ(std::ssize(decision.next.spares) + std::ssize(decision.swapped), spares);
        }
}

TEST(Failover, FollowersOfAFailureAndTheNetworkBlameNoHost) {
  for (const Cause cause :
       {Cause::kCascade, Cause::kNetwork, Cause::kCrashUnknown, Cause::kUnknown, Cause::kLauncher}) {
    const auto decision = decide_failover(state_of(), {cause, {"n2"}, true}, kAll);
    EXPECT_TRUE(decision.retries);
    EXPECT_EQ(decision.next.hosts, state_of().hosts);
  }
}

TEST(Failover, ASuspectIsSwappedUnlessThatIsNotWanted) {
  AttemptOutcome outcome{Cause::kCrashUnknown, {"n2"}, true, {}, {"n2"}};
  const auto decision = decide_failover(state_of(), outcome, kAll);
  EXPECT_EQ(decision.next.hosts, (Hosts{"n1", "s1", "n3"}));
  EXPECT_NE(decision.reason.find("a suspect: --swap-suspects no"), std::string::npos) << decision.reason;
  FailoverLimits limits = kAll;
  limits.swaps_suspects = false;
  EXPECT_EQ(decide_failover(state_of(), outcome, limits).next.hosts, state_of().hosts);
  outcome = {Cause::kBadNode, {"n1", "n2"}, true, {}, {"n2"}};
  EXPECT_EQ(decide_failover({{"n1", "n2", "n3", "n4"}, {"s1", "s2"}}, outcome, limits).next.hosts,
            (Hosts{"s1", "n2", "n3", "n4"}));
  outcome = {Cause::kOutOfMemory, {"n2"}, true, {}, {"n2"}};
  EXPECT_FALSE(decide_failover(state_of(), outcome, kAll).retries) << "no other node cures it";
}

TEST(Failover, AHangOfWhichNothingIsKnownSwapsTheHostOfRankZeroAndSaysThatItIsBlind) {
  const auto decision = decide_failover(state_of(), {Cause::kSilentHang, {}, true}, kAll);
  EXPECT_EQ(decision.next.hosts, (Hosts{"s1", "n2", "n3"}));
  EXPECT_NE(decision.reason.find("blind"), std::string::npos);
  const auto stuck = decide_failover(state_of(), {Cause::kStuckPreTraining, {}, false}, kAll);
  EXPECT_EQ(stuck.next.hosts, state_of().hosts) << "the start of a job is no hang of a node";
  const auto known = decide_failover(state_of(), {Cause::kSilentHang, {"n3"}, true}, kAll);
  EXPECT_EQ(known.next.hosts, (Hosts{"n1", "n2", "s1"}));
  EXPECT_EQ(known.reason.find("blind"), std::string::npos);
}

TEST(Failover, ABlindSwapTakesASilentHostAndNoneThatReports) {
  const auto blind = [](const Hosts& silent) {
    return decide_failover(state_of(), {Cause::kSilentHang, {}, true, silent}, kAll);
  };
  EXPECT_EQ(blind({"n2", "n3"}).next.hosts, (Hosts{"n1", "s1", "n3"}));
  EXPECT_NE(blind({"n2"}).reason.find("blind"), std::string::npos);
  EXPECT_EQ(blind({"n1", "n2", "n3"}).next.hosts, (Hosts{"s1", "n2", "n3"})) << "the board shows nothing";
  const auto known = decide_failover(state_of(), {Cause::kSilentHang, {"n3"}, true, {"n2"}}, kAll);
  EXPECT_EQ(known.next.hosts, (Hosts{"n1", "n2", "s1"}));
}

TEST(Failover, OfMoreHostsAtFaultThanSparesAsManyAreSwappedAsSparesGo) {
  const FailoverState state{{"n1", "n2", "n3", "n4"}, {"s1"}, 0, 0, 0, 0};
  const Hosts lost{"n3", "n4"};
  for (const Cause cause : {Cause::kBadNode, Cause::kSilentHang, Cause::kStuckPreTraining}) {
    const auto some = decide_failover(state, {cause, lost, true}, kAll);
    ASSERT_TRUE(some.retries) << some.reason;
    EXPECT_EQ(some.next.hosts, (Hosts{"n1", "n2", "s1", "n4"}));
    EXPECT_TRUE(some.next.spares.empty());
    EXPECT_NE(some.reason.find("s1 takes the place of n3, and n4 is tried again: no spare is left"), std::string::npos)
        << some.reason;
  }
  EXPECT_TRUE(is_stopped(decide_failover(state, {Cause::kSoftFailure, lost, true}, kAll), "1 spare node left"))
      << "wrong numbers are not tried again";
  FailoverLimits limits = kAll;
  limits.fewer_hosts = [](int most) { return most >= 2 ? 2 : 0; };
  const auto fewer = decide_failover(state, {Cause::kBadNode, lost, true}, limits);
  EXPECT_EQ(fewer.next.hosts, (Hosts{"n1", "n2"}));
  EXPECT_EQ(fewer.left_out, Hosts{"n4"});
}

TEST(Failover, WhatTimeCuresWaitsLongerEachTimeUntilAStepIsDone) {
  FailoverState state = state_of();
  const FailoverLimits limits{100, false, 0, {}};
  for (const double wait_s : {5.0, 10.0, 20.0, 40.0, 60.0, 60.0}) {
    const auto decision = decide_failover(state, {Cause::kFileSystem, {}, false}, limits);
    ASSERT_TRUE(decision.retries) << decision.reason;
    EXPECT_EQ(decision.wait_s, wait_s);
    state = decision.next;
  }
  EXPECT_EQ(decide_failover(state, {Cause::kFileSystem, {}, true}, limits).wait_s, 5);
}

TEST(Failover, OthersAreRetriedAtOnceAfterAStep) {
  EXPECT_EQ(decide_failover(state_of(), {Cause::kCrashUnknown, {}, true}, kAll).wait_s, 0);
  EXPECT_EQ(decide_failover(state_of(), {Cause::kCrashUnknown, {}, false}, kAll).wait_s, 5);
}

TEST(Failover, TwoAttemptsInARowWithoutAStepStopUnlessTimeMayCureIt) {
  for (const CauseRow& row : cause_table()) {
    if (row.time == Cure::kNo && row.swap == Cure::kNo) continue;
    FailoverState state = state_of();
    state.idle_attempts = 1;
    const auto decision = decide_failover(state, {row.cause, {"n2"}, false}, kAll);
    EXPECT_EQ(decision.retries, row.time == Cure::kYes) << row.kind;
    EXPECT_TRUE(decide_failover(state, {row.cause, {"n2"}, true}, kAll).retries) << row.kind;
  }
}

TEST(Failover, RetriesAndSwapsEndAtTheirLimitsEachByItself) {
  FailoverState state = state_of(10);
  for (int i = 0; i < 3; ++i) {
    const auto decision = decide_failover(state, {Cause::kBadNode, {state.hosts[1]}, true}, {0, true, 3, {}});
    ASSERT_TRUE(decision.retries);
    state = decision.next;
  }
  EXPECT_TRUE(is_stopped(decide_failover(state, {Cause::kBadNode, {state.hosts[1]}, true}, {0, true, 3, {}}),
                         "--max-failover-retries"));
  EXPECT_TRUE(is_stopped(decide_failover(state_of(), {Cause::kCascade, {}, true}, {0, true, 3, {}}), "no --retries"));
  state.retries = 2;
  EXPECT_TRUE(decide_failover(state, {Cause::kCascade, {}, true}, {3, true, 3, {}}).retries);
  EXPECT_TRUE(is_stopped(decide_failover(state, {Cause::kCascade, {}, true}, {2, true, 3, {}}), "all 2 of --retries"));
}

TEST(Failover, WithoutASpareABadNodeIsTriedAgainAndOneWithWrongNumbersIsNot) {
  const auto again = decide_failover(state_of(0), {Cause::kBadNode, {"n2"}, true}, kAll);
  EXPECT_TRUE(again.retries);
  EXPECT_EQ(again.next.hosts, state_of().hosts);
  EXPECT_TRUE(
      is_stopped(decide_failover(state_of(0), {Cause::kSoftFailure, {"n2"}, true}, kAll), "0 spare nodes left"));
  EXPECT_TRUE(is_stopped(decide_failover(state_of(), {Cause::kSoftFailure, {"n2"}, true}, {5, false, 0, {}}),
                         "only another node cures it"));
}

TEST(Failover, ACauseThatNamesMostHostsSwapsNone) {
  for (const Hosts& named : {Hosts{"n1", "n2"}, Hosts{"n3", "n2", "n1"}}) {
    const auto decision = decide_failover(state_of(5), {Cause::kBadNode, named, true}, kAll);
    ASSERT_TRUE(decision.retries);
    EXPECT_EQ(decision.next.hosts, state_of().hosts);
    EXPECT_NE(decision.reason.find(fmt::format("names {} of 3 hosts", named.size())), std::string::npos);
  }
}

TEST(Failover, WithoutSparesItContinuesOnAsManyHostsAsTheLayoutAllowsAndTheOthersBecomeSpares) {
  FailoverState state{{"n1", "n2", "n3", "n4", "n5", "n6"}, {"s1"}, 0, 0, 0, 0};
  FailoverLimits limits = kAll;
  limits.fewer_hosts = [](int most) { return most >= 4 ? 4 : most >= 2 ? 2 : 0; };
  const auto first = decide_failover(state, {Cause::kBadNode, {"n2", "n5"}, true}, limits);
  ASSERT_TRUE(first.retries);
  EXPECT_EQ(first.next.hosts, (Hosts{"n1", "s1", "n3", "n4"}));
  EXPECT_EQ(first.next.spares, Hosts{"n6"});
  EXPECT_EQ(first.left_out, Hosts{"n5"});
  EXPECT_NE(first.reason.find("continues on 4 of 6 nodes"), std::string::npos) << first.reason;
  EXPECT_NE(first.reason.find("1.5 times"), std::string::npos) << first.reason;
  const auto second = decide_failover(first.next, {Cause::kSoftFailure, {"n1"}, true}, limits);
  EXPECT_EQ(second.next.hosts, (Hosts{"n6", "s1", "n3", "n4"}));  // a swap comes before fewer hosts
  const auto third = decide_failover(second.next, {Cause::kSilentHang, {"n4"}, true}, limits);
  EXPECT_EQ(third.next.hosts, (Hosts{"n6", "s1"}));
  EXPECT_EQ(third.next.spares, Hosts{"n3"});
  const auto fourth = decide_failover({{"n6", "s1"}, {}, 0, 3, 0, 0}, {Cause::kSoftFailure, {"s1"}, true}, limits);
  EXPECT_TRUE(is_stopped(fourth, "0 spare nodes left")) << fourth.reason;
}

TEST(Failover, AutomaticSparesAreTwoPercentAndAtLeastFour) {
  EXPECT_EQ(automatic_spares(1), 4);
  EXPECT_EQ(automatic_spares(200), 4);
  EXPECT_EQ(automatic_spares(201), 5);
  EXPECT_EQ(automatic_spares(1000), 20);
}

}  // namespace failover_test
}  // namespace athanor::launch
