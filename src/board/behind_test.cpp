#include "board/behind.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"
#include "board/run_status.h"

namespace athanor::board {
namespace {

constexpr double kNow = 1000;

SeenRank seen(int rank, int64_t started, double change_s = 30) {
  SeenRank result{{}, "n" + std::to_string(rank / 2), kNow};
  result.rank.rank = rank;
  result.rank.state = "running";
  result.rank.attempt = 1;
  result.rank.step = 5;
  result.rank.phase = "forward";
  result.rank.change_s = change_s;
  result.rank.groups = {{7, "data", 4, started}};
  return result;
}

SeenRank waiting(int rank, int64_t number, double change_s = 30) {
  SeenRank result = seen(rank, number + 1, change_s);
  result.rank.waits = WaitReport{7, "data", number, "all_reduce", -1};
  return result;
}

TEST(Behind, IsTheRankThatHasNotStartedTheCallForWhichTheOthersWait) {
  const Behind behind = find_behind({waiting(0, 12), waiting(1, 12), seen(2, 12), waiting(3, 12)});
  ASSERT_EQ(behind.ranks.size(), 1u);
  EXPECT_EQ(behind.ranks[0].index, 2u);
  EXPECT_EQ(behind.ranks[0].num_waiting, 3);
  EXPECT_EQ(behind.ranks[0].call, "all_reduce 12 of group data");
  EXPECT_EQ(behind.num_waiting, 3);
}

TEST(Behind, ARankThatHasStartedTheCallIsNotBehind) {
  EXPECT_EQ(find_behind({waiting(0, 12), seen(1, 13)}).num_behind, 0);
}

TEST(Behind, ARankThatWaitsForAnotherIsNotBehindItself) {
  // 0 waits for 1 in the data group; 1 waits for a message of 2, which computes.
  SeenRank between = seen(1, 12);
  between.rank.waits = WaitReport{9, "pipeline", 3, "receive", 2};
  SeenRank last = seen(2, 0);
  last.rank.groups.clear();
  const Behind behind = find_behind({waiting(0, 12), between, last});
  ASSERT_EQ(behind.ranks.size(), 1u);
  EXPECT_EQ(behind.ranks[0].index, 2u);
  EXPECT_EQ(behind.ranks[0].num_waiting, 2);
  EXPECT_EQ(behind.ranks[0].call, "receive 3 of group pipeline from rank 2");
}

TEST(Behind, AWaitThatHasJustBegunAccusesNoRank) {
  EXPECT_EQ(find_behind({waiting(0, 12, 0.5), seen(1, 12)}).num_behind, 0);
}

TEST(Behind, AReportFromBeforeTheWaitAccusesNoRank) {
  SeenRank old = seen(1, 12);
  old.seen = kNow - 29.5;  // half a second after the other began to wait
  EXPECT_EQ(find_behind({waiting(0, 12), old}).num_behind, 0);
  old.seen = kNow - 28;
  EXPECT_EQ(find_behind({waiting(0, 12), old}).num_behind, 1);
}

TEST(Behind, AStoppedRankIsBehindAlsoIfItWaitedItself) {
  SeenRank stopped = waiting(2, 11);
  stopped.rank.state = "stopped";
  const Behind behind = find_behind({waiting(0, 12), waiting(1, 12), stopped});
  ASSERT_EQ(behind.ranks.size(), 1u);
  EXPECT_EQ(behind.ranks[0].index, 2u);
  EXPECT_EQ(behind.ranks[0].num_waiting, 2);
}

TEST(Behind, ARankThatWasStoppedWithinACallIsBehindAndThoseInTheCallWithItAreNot) {
  // 2 was stopped when all had started call 11. 1 has not got its part of it; 0 and 3 have, and are in the next call.
  SeenRank stopped = waiting(2, 11);
  stopped.rank.state = "stopped";
  const Behind behind = find_behind({waiting(0, 12), waiting(1, 11), stopped, waiting(3, 12)});
  ASSERT_EQ(behind.num_behind, 1);
  EXPECT_EQ(behind.ranks[0].index, 2u);
  EXPECT_EQ(behind.ranks[0].num_waiting, 3);
}

SeenRank silent(SeenRank last) {
  last.seen = kNow - 40;  // before the others began to wait
  last.silent_s = 40;
  return last;
}

TEST(Behind, RanksOfASilentNodeAreBehindIfNothingElseIsMissing) {
  // A host was frozen in call 11, when its ranks had been in it for a moment.
  const Behind behind = find_behind({waiting(0, 11), waiting(1, 11), silent(waiting(2, 11, 0.1)), silent(seen(3, 11))});
  ASSERT_EQ(behind.num_behind, 2);
  EXPECT_EQ(behind.ranks[0].index, 2u);
  EXPECT_EQ(behind.ranks[1].index, 3u);
  EXPECT_EQ(behind.ranks[0].num_waiting, 2);
  SeenRank peer = waiting(0, 3);
  peer.rank.waits->peer = 2;
  EXPECT_EQ(find_behind({peer, silent(seen(2, 11))}).num_behind, 1) << "that a message is awaited from";
}

TEST(Behind, RanksOfANodeThatOnlyLostItsCollectorAreNotBlamedForAnotherRank) {
  const Behind behind = find_behind({waiting(0, 12), seen(1, 12), silent(seen(2, 5)), silent(seen(3, 5))});
  ASSERT_EQ(behind.num_behind, 1);
  EXPECT_EQ(behind.ranks[0].index, 1u);
  EXPECT_EQ(find_behind({seen(0, 12), seen(1, 12), silent(seen(2, 5))}).num_behind, 0) << "no rank waits";
}

TEST(Behind, RanksOfASilentNodeAreBehindIfAllOthersHaveGone) {
  SeenRank gone = seen(0, 12);
  gone.rank.state = "gone";
  const Behind behind = find_behind({gone, silent(seen(2, 12))});
  EXPECT_EQ(behind.num_behind, 2) << "the node was lost, and the launcher ended the others";
}

TEST(Behind, RanksThatWaitForOneAnotherAreShownAsACircle) {
  SeenRank first = seen(0, 0), second = seen(1, 0);
  first.rank.waits = WaitReport{9, "pipeline", 0, "receive", 1};
  second.rank.waits = WaitReport{9, "pipeline", 0, "receive", 0};
  const Behind behind = find_behind({first, second});
  EXPECT_EQ(behind.num_behind, 0);
  EXPECT_EQ(behind.in_a_circle.size(), 2u);
}

TEST(Behind, OfTwelveThousandRanksOnlySixteenAreNamedAndAllAreCounted) {
  std::vector<SeenRank> ranks;
  for (int i = 0; i < 12'288; ++i) ranks.push_back(i % 2 == 0 ? waiting(i, 12) : seen(i, 12));
  const Behind behind = find_behind(ranks);
  EXPECT_EQ(behind.ranks.size(), kMostNamed);
  EXPECT_EQ(behind.num_behind, 6144);
  EXPECT_EQ(behind.ranks[0].num_waiting, 6144);
}

TEST(Behind, TheRankThatWentFirstIsNamedBeforeAllThatWereEndedBecauseOfIt) {
  std::vector<SeenRank> ranks;
  for (int i = 0; i < 100; ++i) {
    ranks.push_back(waiting(i, 12));
    ranks[i].rank.state = "gone";
    ranks[i].rank.gone_s = i == 70 ? 5 : 3;
  }
  ranks[70].rank.change_s = 6;  // it has changed later than those that waited for it
  const Behind behind = find_behind(ranks);
  EXPECT_EQ(behind.num_behind, 100);
  EXPECT_EQ(behind.ranks[0].index, 70u);
}

NodeReport node_of(const std::string& name, std::vector<RankReport> ranks) {
  NodeReport report;
  report.node = name;
  report.job_ranks = 4;
  report.written = kNow;
  report.interval_s = 5;
  report.ranks = std::move(ranks);
  return report;
}

TEST(RunStatus, ShowsTheNewestAttemptAndNotWhatNodesOfAnEarlierOneHaveLeft) {
  RankReport old = seen(3, 0).rank;
  old.state = "gone";
  RankReport now = seen(0, 0).rank;
  now.attempt = 2;
  const RunStatus status = status_of({node_of("n0", {now}), node_of("n1", {old})}, {}, kNow);
  EXPECT_EQ(status.attempt, 2);
  ASSERT_EQ(status.ranks.size(), 1u);
  EXPECT_EQ(status.ranks[0].rank.rank, 0);
  EXPECT_EQ(status.num_gone, 0);
}

TEST(RunStatus, TheTextNamesTheRankBehindWithItsNodeAndForWhatTheOthersWait) {
  SeenRank late = seen(1, 12);
  late.rank.state = "stopped";
  late.rank.process = 4711;
  RunStatus status =
      status_of({node_of("n0", {waiting(0, 12).rank, late.rank}), node_of("n1", {waiting(2, 12).rank})}, {}, kNow);
  const std::string text = status_text("runs/tiny", status);
  EXPECT_SAYS(text, "runs/tiny: attempt 1, step 5; 3 of 4 ranks on 2 nodes; last change 30 s ago");
  EXPECT_SAYS(text, "1 process stopped");
  EXPECT_SAYS(text,
              "  rank 1 on n0 (process 4711): stopped by a signal or a debugger, step 5, forward, no change for 30 s; "
              "2 ranks wait for its all_reduce 12 of group data");
  EXPECT_EQ(status_json("r", status)["behind"][0]["rank"], 1);
  status.oldest_report_s = 1.0004999;
  EXPECT_EQ(status_json("r", status)["oldest_report_s"].dump(), "1.0") << "milliseconds are enough";
}

TEST(RunStatus, ANodeThatDoesNotReportIsNamedWithItsRanksAndOneWhoseRanksHaveGoneIsNot) {
  RankReport gone = seen(3, 0).rank;
  gone.state = "gone";
  const RunStatus status =
      status_of({node_of("n0", {seen(0, 0).rank, seen(1, 0).rank}), node_of("n1", {gone})}, {}, kNow + 40);
  EXPECT_SAYS(status_text("r", status), "no report from n0 (ranks 0 to 1) for 40 s: the node is lost or frozen");
  ASSERT_EQ(status_json("r", status)["late"].size(), 1u);
  EXPECT_EQ(status_json("r", status)["late"][0]["ranks"], (std::vector<int>{0, 1}));
  EXPECT_TRUE(status_of({node_of("n0", {seen(0, 0).rank})}, {}, kNow + 14).late.empty()) << "two may be on their way";
}

TEST(RunStatus, OfProcessesThatHaveGoneTheTimesGoOn) {
  RankReport gone = seen(3, 0).rank, other = seen(2, 0).rank;
  gone.state = other.state = "gone";
  gone.gone_s = 2;
  const std::string text = status_text("r", status_of({node_of("n1", {other, gone})}, {}, kNow + 40));
  EXPECT_SAYS(text, "rank 3 on n1 (process 0): gone for 42 s, last seen in step 5, forward, no change for 70 s");
  EXPECT_SAYS(text, "\n2 processes gone\n");
}

class RunEndTest : public FolderTest {};

TEST_F(RunEndTest, IsThatOfTheLastAttempt) {
  EXPECT_FALSE(end_of_run(folder_));
  write("events.jsonl",
        "{\"event\":\"start\",\"attempt\":1}\n{\"event\":\"end\",\"attempt\":1,\"step\":3,\"exit_code\":78,"
        "\"cause\":\"collective\",\"rank\":2,\"text\":\"lost\",\"time\":5}\n");
  const auto end = end_of_run(folder_);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 78);
  EXPECT_EQ(end->rank, 2);
  EXPECT_SAYS(status_text("r", status_of({}, end, kNow)),
              "r: attempt 1 has ended after step 3: collective (exit code 78); rank 2: lost");
  const auto json = status_json("r", status_of({}, end, kNow));
  EXPECT_EQ(json["attempt"], 1);
  EXPECT_EQ(json["step"], 3);
  write("events.jsonl", read_file(folder_ / "events.jsonl") + "{\"event\":\"resume\",\"attempt\":2}\n");
  EXPECT_FALSE(end_of_run(folder_)) << "the second attempt has no end";
}

}  // namespace
}  // namespace athanor::board
