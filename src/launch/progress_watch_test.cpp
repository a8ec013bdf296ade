#include "launch/progress_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/wall_clock.h"
#include "board/place.h"
#include "launch/testing/recorded_machine.h"

namespace athanor::launch {
namespace progress_watch_test {

using namespace std::chrono_literals;

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

class Progress : public RecordedMachine {
 protected:
  // A node has two ranks, and reports every five seconds. @param age_s  of its report. @param waits  whether its ranks
  // have waited for all others for five seconds.
  void report(const std::string& node, int first_rank, int64_t step, double age_s = 0, bool waits = false) {
    board::NodeReport written{node, num_ranks_, unix_time_s() - age_s, 5, {}};
    for (int rank = first_rank; rank < first_rank + 2; ++rank) {
      board::RankReport one;
      one.rank = rank, one.process = 10 + rank, one.state = "running";
      one.attempt = 1, one.step = step, one.phase = "forward";
      one.groups = {{7, "data", 4, waits ? 13 : 12}};
      if (waits) one.change_s = 5, one.waits = board::WaitReport{7, "data", 12, "all_reduce", -1};
      written.ranks.push_back(one);
    }
    write(board::reports_of("run") / (node + ".json"), board::to_json(written).dump());
  }
  bool is_overdue_within(ProgressWatch& watch, std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      if (watch.is_overdue(tee_)) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  // Looks once more, however short ago it last did.
  double waited_after_a_look(ProgressWatch& watch) {
    std::this_thread::sleep_for(120ms);
    EXPECT_FALSE(watch.is_overdue(tee_));
    return watch.waited_s();
  }
  std::filesystem::path run() const { return folder_ / "run"; }

  int num_ranks_ = 4;
  const JobHosts hosts_{{{"n1", 2}, {"n2.cluster.org", 2}, {"n3", 2}}};
  const int nowhere_ = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  OutputTee tee_{OutputTee::Log::kLater, nowhere_, nowhere_};
};

TEST_F(Progress, ACommandWithoutABoardIsOverdueOnceItsOutputStops) {
  ProgressWatch watch(std::nullopt, 0, 2, hosts_, "n1");
  std::this_thread::sleep_for(300ms);
  EXPECT_GE(waited_after_a_look(watch), 0.3);
  ASSERT_EQ(::write(tee_.streams().output, "a line\n", 7), 7);
  tee_.move(-1, 0ms);
  EXPECT_LT(waited_after_a_look(watch), 0.3);
  EXPECT_TRUE(watch.at_fault().empty());
  ProgressWatch silent(std::nullopt, 0, 0.02, hosts_, "n1");
  EXPECT_TRUE(is_overdue_within(silent, 10s));
  ProgressWatch never(std::nullopt, 0, 0, hosts_, "n1");
  EXPECT_FALSE(is_overdue_within(never, 300ms));
}

TEST_F(Progress, StepsOnTheBoardAreProgressAndOutputIsNone) {
  report("n1", 0, 1);
  ProgressWatch watch(run(), 0, 2, hosts_, "n1");
  waited_after_a_look(watch);
  std::this_thread::sleep_for(300ms);
  ASSERT_EQ(::write(tee_.streams().output, "a warning\n", 10), 10);
  tee_.move(-1, 0ms);
  EXPECT_GE(waited_after_a_look(watch), 0.3);
  report("n1", 0, 2);
  EXPECT_LT(waited_after_a_look(watch), 0.3);
}

TEST_F(Progress, WhatAnEarlierAttemptLeftOnTheBoardIsNoProgressAndNamesNobody) {
  report("n1", 0, 7);
  report("n2", 2, 7, 100);
  ProgressWatch watch(run(), 1, 0.02, hosts_, "n1");
  EXPECT_TRUE(is_overdue_within(watch, 10s));
  EXPECT_TRUE(watch.at_fault().empty());
}

// A node that is lost writes no report any more, which is known after three intervals.
TEST_F(Progress, ATimeoutWaitsUntilANodeThatNoLongerReportsCanBeNamed) {
  report("n1", 0, 7, 0, true);
  report("n2", 2, 7, 9);
  ProgressWatch watch(run(), 0, 0.02, hosts_, "n1");
  EXPECT_FALSE(is_overdue_within(watch, 300ms));
  EXPECT_TRUE(watch.at_fault().empty());
  report("n2", 2, 7, 30);
  EXPECT_TRUE(is_overdue_within(watch, 10s));
  EXPECT_EQ(watch.at_fault(), std::vector<std::string>{"n2.cluster.org"});
}

TEST_F(Progress, OfTwoNodesThatAreLostAtOnceTheSecondIsAwaited) {
  num_ranks_ = 6;
  report("n1", 0, 7, 0, true);
  report("n2", 2, 7, 30);
  report("n3", 4, 7, 9);
  ProgressWatch watch(run(), 0, 0.02, hosts_, "n4");
  EXPECT_FALSE(is_overdue_within(watch, 300ms));
  report("n3", 4, 7, 30);
  EXPECT_TRUE(is_overdue_within(watch, 10s));
  EXPECT_EQ(watch.at_fault(), (std::vector<std::string>{"n2.cluster.org", "n3"}));
}

TEST_F(Progress, AHostThatHasNeverReportedIsNamedIfTheOthersHave) {
  num_ranks_ = 6;
  report("n1", 0, 7, 0, true);
  report("n2", 2, 7, 0, true);
  ProgressWatch watch(run(), 0, 0.02, hosts_, "n1");
  EXPECT_FALSE(is_overdue_within(watch, 300ms)) << "its first report may be on the way";
  EXPECT_EQ(watch.at_fault(), std::vector<std::string>{"n3"});
  std::filesystem::remove(board::reports_of(run()) / "n2.json");
  EXPECT_TRUE(watch.at_fault().empty()) << "this host alone reports: those of others are elsewhere";
}

}  // namespace progress_watch_test

}  // namespace athanor::launch
