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

}  // namespace watchdog_test
}  // namespace athanor::launch
