#include "launch/watchdog.h"

#include <gtest/gtest.h>

namespace athanor::launch {
namespace watchdog_test {

board::RunStatus status_with(int64_t attempt, const std::string& phase, int64_t step, int ranks = 4) {
  board::NodeReport node{"n1", ranks, 100, 5, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    board::RankReport report;
    report.rank = rank, report.process = 10 + rank, report.state = "running";
    report.attempt = attempt, report.step = step, report.phase = phase;
    node.ranks.push_back(report);
  }
  return board::status_of({node}, {}, 100);
}

TEST(Watchdog, EachStageHasItsAllowance) {
  constexpr double kTimeout_s = 10;
  for (const auto& [stage, allowed_s] : {std::pair(Stage::kLoad, 30.0), std::pair(Stage::kFirstStep, 20.0),
                                         std::pair(Stage::kSave, 30.0), std::pair(Stage::kStep, 10.0)}) {
    Watchdog watchdog(kTimeout_s, 0);
    watchdog.see(stage, "a", 100);
    EXPECT_FALSE(watchdog.is_overdue(100 + allowed_s));
    EXPECT_TRUE(watchdog.is_overdue(100.1 + allowed_s));
    watchdog.see(stage, "a", 100 + allowed_s);
    EXPECT_TRUE(watchdog.is_overdue(100.1 + allowed_s)) << "the same again is no progress";
    watchdog.see(stage, "b", 100 + allowed_s);
    EXPECT_FALSE(watchdog.is_overdue(100.1 + allowed_s));
  }
}

TEST(Watchdog, ZeroIsNeverOverdueAndACommandThatShowsNothingIs) {
  EXPECT_FALSE(Watchdog(0, 0).is_overdue(1e9));
  EXPECT_FALSE(Watchdog(10, 0).is_overdue(30));
  EXPECT_TRUE(Watchdog(10, 0).is_overdue(30.1));
}

TEST(Watchdog, TheBoardTellsTheStage) {
  EXPECT_EQ(sight_of({}, 0, 0).stage, Stage::kLoad);
  EXPECT_EQ(sight_of(status_with(0, "start", 0), 3, 0).stage, Stage::kLoad);
  EXPECT_EQ(sight_of(status_with(4, "start", 0), 3, 0).stage, Stage::kLoad);
  EXPECT_EQ(sight_of(status_with(4, "forward", 7), 3, 0).stage, Stage::kFirstStep);
  EXPECT_EQ(sight_of(status_with(4, "forward", 7), 3, 7).stage, Stage::kFirstStep);
  EXPECT_EQ(sight_of(status_with(4, "forward", 8), 3, 7).stage, Stage::kStep);
  EXPECT_EQ(sight_of(status_with(4, "save", 8), 3, 7).stage, Stage::kSave);
  EXPECT_EQ(sight_of(status_with(4, "validate", 8), 3, 7).stage, Stage::kSave);
}

TEST(Watchdog, WhatALostNodeShowedLastIsNoStageOfTheJob) {
  board::RunStatus status = status_with(4, "reduce", 8);
  status.ranks[3].rank.phase = "start";
  EXPECT_EQ(sight_of(status, 3, 7).stage, Stage::kLoad);
  status.ranks[3].silent_s = 16;
  EXPECT_EQ(sight_of(status, 3, 7).stage, Stage::kStep);
}

TEST(Watchdog, StepsAndPhasesAreProgressAndTheBoardOfAnEarlierAttemptIsNot) {
  const auto state = [](const board::RunStatus& status) { return sight_of(status, 3, 1).state; };
  EXPECT_EQ(state(status_with(4, "forward", 8)), state(status_with(4, "forward", 8)));
  EXPECT_NE(state(status_with(4, "forward", 8)), state(status_with(4, "backward", 8)));
  EXPECT_NE(state(status_with(4, "forward", 8)), state(status_with(4, "forward", 9)));
  EXPECT_EQ(state(status_with(3, "forward", 8)), "");
  EXPECT_EQ(sight_of(status_with(3, "forward", 8), 3, 0).stage, Stage::kLoad);
}

TEST(Watchdog, TheNodesOfRanksBehindAreLateUnlessMostRanksAre) {
  board::RunStatus status = status_with(4, "forward", 8);
  EXPECT_TRUE(late_nodes(status).empty());
  status.ranks[2].node = "n2";
  status.behind.ranks = {{2, 3, "all_reduce 1 of group data"}};
  status.behind.num_behind = 1;
  EXPECT_EQ(late_nodes(status), std::vector<std::string>{"n2"});
  status.behind.num_behind = 3;
  EXPECT_TRUE(late_nodes(status).empty());
}

// Four nodes with a rank each. @param ages_s  of their reports, which come every five seconds; below 0: there is none.
board::RunStatus status_of_four(const std::vector<double>& ages_s) {
  std::vector<board::NodeReport> reports;
  for (int rank = 0; rank < 4; ++rank) {
    const double age_s = ages_s[static_cast<size_t>(rank)];
    if (age_s < 0) continue;
    board::RankReport one;
    one.rank = rank, one.process = 10 + rank, one.state = "running", one.attempt = 1, one.phase = "forward";
    reports.push_back({"n" + std::to_string(rank + 1), 4, 100 - age_s, 5, {one}});
  }
  return board::status_of(reports, {}, 100);
}
const JobHosts kFour({{"n1", 1}, {"n2.site.org", 1}, {"n3", 1}, {"n4", 1}});
using Names = std::vector<std::string>;

TEST(Watchdog, TwoOfFourHostsThatAreLostAtOnceAreNamed) {
  for (const auto& ages_s : {std::vector<double>{0, 0, -1, -1}, {0, 0, 40, 40}, {0, 0, -1, 40}})
    EXPECT_EQ(hosts_at_fault(status_of_four(ages_s), kFour, "n1"), (Names{"n3", "n4"}));
  EXPECT_EQ(hosts_at_fault(status_of_four({0, -1, 0, -1}), kFour, "login"), (Names{"n2.site.org", "n4"}));
}

TEST(Watchdog, WhereThisHostAloneReportsNobodyIsNamed) {
  const board::RunStatus alone = status_of_four({0, -1, -1, -1});
  EXPECT_TRUE(hosts_at_fault(alone, kFour, "n1").empty());
  EXPECT_EQ(silent_hosts(alone, kFour), (Names{"n2.site.org", "n3", "n4"}));
  EXPECT_EQ(silent_hosts({}, kFour).size(), 4u);
  EXPECT_TRUE(silent_hosts(status_of_four({0, 4, 0, 9}), kFour).empty());
}

TEST(Watchdog, ARankThatIsBehindOnAHostThatReportsExplainsMoreThanASilentHost) {
  board::RunStatus status = status_of_four({0, 0, 0, 40});
  status.behind.ranks = {{1, 3, "all_reduce 1 of group data"}};
  status.behind.num_behind = 1;
  EXPECT_EQ(hosts_at_fault(status, kFour, "n1"), Names{"n2.site.org"});
  status.behind.ranks = {{3, 3, "all_reduce 1 of group data"}};
  EXPECT_EQ(hosts_at_fault(status, kFour, "n1"), Names{"n4"});
}

}  // namespace watchdog_test
}  // namespace athanor::launch
