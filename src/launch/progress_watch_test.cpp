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
