#include "board/board.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "base/error.h"
#include "base/testing/file_size_limit.h"
#include "board/collector.h"
#include "board/process_state.h"
#include "board/report_socket.h"
#include "board/run_status.h"
#include "board/snapshot.h"
#include "board/testing/collector_test.h"

namespace athanor::board {
namespace {

namespace fs = std::filesystem;

TEST_F(BoardTest, ShowsWhatARankPublishes) {
  const Board board(of_rank(3));
  const Publisher rank = board.publisher();
  const int members[] = {3, 5};
  const int group = rank.add_group("data", members, "host");
  rank.begin_attempt(2);
  rank.set_step(41);
  rank.set_phase(Phase::kBackward, 1);
  rank.start_collective(group, 9);
  rank.begin_wait(group, 8, Collective::kReduceScatter, -1);
  const NodeReport report = parse_node_report(to_json(read()).dump(), "report");  // the text has all of it
  ASSERT_EQ(report.ranks.size(), 1u);
  const RankReport& shown = report.ranks[0];
  EXPECT_EQ(report.node, "n1");
  EXPECT_EQ(report.job_ranks, 4);
  EXPECT_EQ(shown.rank, 3);
  EXPECT_EQ(shown.process, ::getpid());
  EXPECT_EQ(shown.state, "running");
  EXPECT_EQ(shown.attempt, 2);
  EXPECT_EQ(shown.step, 41);
  EXPECT_EQ(shown.phase, "backward");
  EXPECT_EQ(shown.microbatch, 1);
  EXPECT_LT(shown.change_s, 60);
  ASSERT_EQ(shown.groups.size(), 1u);
  EXPECT_EQ(shown.groups[0].started, 9);
  ASSERT_TRUE(shown.waits);
  EXPECT_EQ(describe_wait(*shown.waits), "reduce_scatter 8 of group data");
  rank.end_wait();
  EXPECT_FALSE(read().ranks[0].waits);
}

TEST_F(BoardTest, AProcessThatIsStoppedOrKilledIsShownAsSuch) {
  const pid_t child = start_rank(1);
  EXPECT_EQ(read().ranks[0].state, "running");
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(becomes_true([&] { return read().ranks[0].state == "stopped"; }));
  end_rank(child);
  EXPECT_EQ(read().ranks[0].state, "gone");
}

TEST_F(BoardTest, ANumberOfAProcessThatIsUsedAgainIsNotTakenForTheRank) {
  EXPECT_EQ(state_of_process(::getpid(), start_of_process(::getpid())), ProcessState::kRunning);
  EXPECT_EQ(state_of_process(::getpid(), start_of_process(::getpid()) - 1), ProcessState::kGone);
  EXPECT_EQ(start_of_process(0x3fffffff), 0u);
}

TEST_F(BoardTest, RecordsOfProcessesThatHaveGoneAreTakenAgain) {
  end_rank(start_rank(0));
  { const Board ended(of_rank(1)); }
  const Board second(of_rank(2)), third(of_rank(3));
  const NodeReport report = read();
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_EQ(report.ranks[0].rank, 2);
  EXPECT_EQ(report.ranks[1].rank, 3);
}

TEST_F(BoardTest, ARankThatEndsInOrderIsNotTakenForAKilledOne) {
  { const Board board(of_rank(0)); }
  EXPECT_EQ(read().ranks[0].state, "ended");
}

TEST_F(BoardTest, AFolderThatIsMissingIsAnErrorWithItsName) {
  BoardOptions options = options_;
  options.place = place_of(folder_ / "absent", run_dir_, "n1", ::geteuid());
  EXPECT_SAYS(message_of<IoError>([&] { Board{options}; }), "absent");
}

TEST_F(BoardTest, ARunWithoutRoomForItsBoardGetsAWarningAndNoBoard) {
  ::setenv("ATHANOR_BOARD", (folder_ / "absent").c_str(), 1);
  const OpenedBoard none = open_board(run_dir_, 0, 1);
  EXPECT_EQ(none.board, nullptr);
  EXPECT_FALSE(none.publisher());
  EXPECT_SAYS(none.warning, "athanor status");
  ::setenv("ATHANOR_BOARD", "off", 1);
  EXPECT_EQ(open_board(run_dir_, 0, 1).warning, "");
  EXPECT_EQ(open_board(run_dir_, 0, 1).board, nullptr);
  ::setenv("ATHANOR_BOARD", "relative", 1);
  EXPECT_SAYS(open_board(run_dir_, 0, 1).warning, "absolute path");
  ::unsetenv("ATHANOR_BOARD");
}

// A store into memory that a full file system does not have would end the process with SIGBUS.
TEST_F(BoardTest, MemoryThatCannotBeReservedIsAnErrorAndNoSignal) {
  const FileSizeLimit limit(kBoardBytes / 2);
  EXPECT_SAYS(message_of<IoError>([&] { Board{options_}; }), "cannot reserve the memory");
  EXPECT_FALSE(std::filesystem::exists(options_.place.memory)) << "an empty file would stay in memory for ever";
}

TEST_F(BoardTest, AFileOfAnotherFormatIsReplacedByARankAndRefusedByAReader) {
  { const Board board(of_rank(0)); }
  std::string bytes = read_file(options_.place.memory);
  bytes[8] = static_cast<char>(kFormat + 1);
  write_raw(options_.place.memory, bytes);
  EXPECT_SAYS(message_of<Error>([&] { read(); }), "another version");
  const Board board(of_rank(1));
  EXPECT_EQ(read().ranks[0].rank, 1);
}

TEST_F(CollectorTest, AnswersWhileARankIsStoppedAndEndsItselfWhenAllRanksHaveGone) {
  const pid_t first = start_rank(0), second = start_rank(1, [](Publisher board) { board.begin_attempt(1); });
  start();
  ::kill(first, SIGSTOP);
  EXPECT_TRUE(becomes_true([&] {
    const NodeReport report = parse_node_report(*ask_collector(options_.place.socket), "answer");
    return report.ranks.size() == 2 && report.ranks[0].state == "stopped" && report.ranks[1].state == "running";
  }));
  end_rank(first);
  EXPECT_TRUE(becomes_true([&] {
    const NodeReport report = parse_node_report(*ask_collector(options_.place.socket), "answer");
    return report.ranks[0].state == "gone" && report.ranks[0].gone_s;
  }));
  end_rank(second);
  EXPECT_TRUE(becomes_true([&] { return !has_files(); })) << "it has not ended";
  const NodeReport last = parse_node_report(read_file(file()), "file");
  ASSERT_EQ(last.ranks.size(), 2u) << "its last file stands";
  EXPECT_EQ(last.ranks[1].state, "gone");
}

TEST_F(CollectorTest, WritesNothingBeforeTheChecksOfTheStartHavePassed) {
  const pid_t rank = start_rank(0);
  start();
  ::sleep(2);
  EXPECT_TRUE(fs::is_empty(run_dir_));
  end_rank(rank);
  EXPECT_TRUE(becomes_true([&] { return !has_files(); }));
  EXPECT_TRUE(fs::is_empty(run_dir_));
}

TEST_F(CollectorTest, ARunFolderThatWasRemovedIsNotMadeAgain) {
  const pid_t rank = start_rank(0, [](Publisher board) { board.begin_attempt(1); });
  start();
  EXPECT_TRUE(becomes_true([&] { return fs::exists(file()); }));
  fs::remove_all(run_dir_);
  end_rank(rank);
  EXPECT_TRUE(becomes_true([&] { return !has_files(); }));
  EXPECT_FALSE(fs::exists(run_dir_));
}

TEST_F(CollectorTest, WritesItsFilesAlsoIfThePathOfItsSocketIsTooLong) {
  const fs::path deep = shared_ / std::string(90, 'd');
  fs::create_directory(deep);
  options_.place = place_of(deep, run_dir_, "n1", ::geteuid());
  const pid_t rank = start_rank(0, [](Publisher board) { board.begin_attempt(1); });
  detach();
  EXPECT_TRUE(becomes_true([&] { return fs::exists(file()); }));
  end_rank(rank);
  EXPECT_TRUE(becomes_true([&] { return !has_files(); }));
}

TEST(Collector, AllNodesOfAJobWriteAtMostAHundredFilesInASecond) {
  EXPECT_EQ(report_interval_s(1, 1), 5);
  EXPECT_EQ(report_interval_s(12'288, 12), 1024 / 100.0);
  EXPECT_EQ(report_interval_s(4, 0), 5);
}

}  // namespace
}  // namespace athanor::board
