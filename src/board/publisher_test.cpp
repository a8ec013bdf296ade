#include "board/publisher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/wall_clock.h"
#include "board/snapshot.h"

namespace athanor::board {
namespace {

std::unique_ptr<Record> empty_record() {
  auto record = std::make_unique<Record>();
  record->live.wait_group = -1;
  return record;
}

TEST(Publisher, AReaderSeesTheValuesOfOneMomentWhileAThreadWrites) {
  const auto record = empty_record();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const Publisher board(record.get());
    for (int32_t i = 0; !stop; ++i) {  // every value of a wait is the same number
      board.begin_wait(i % static_cast<int>(kMaxGroups), i % static_cast<int>(kMaxGroups), Collective::kSend,
                       i % static_cast<int>(kMaxGroups));
    }
  });
  int64_t num_whole = 0, last_ns = 0;
  for (const auto begin = std::chrono::steady_clock::now(); num_whole < 20'000 && seconds_since(begin) < 20;) {
    const LiveCopy copy = copy_live(record->live);
    if (copy.torn || copy.wait_group < 0) continue;  // too many changes for all tries, or none yet
    ++num_whole;
    EXPECT_EQ(copy.wait_number, copy.wait_group);
    EXPECT_EQ(copy.wait_peer, copy.wait_group);
    EXPECT_GE(copy.changed_ns, last_ns);
    last_ns = copy.changed_ns;
    if (HasFailure()) break;
  }
  stop = true;
  writer.join();
  EXPECT_EQ(num_whole, 20'000);
}

TEST(Publisher, AWriterThatWasStoppedInTheMidstOfAChangeIsReadAsItStands) {
  const auto record = empty_record();
  const Publisher board(record.get());
  board.set_step(7);
  record->live.sequence = record->live.sequence + 1;
  const LiveCopy copy = copy_live(record->live);
  EXPECT_TRUE(copy.torn);
  EXPECT_EQ(copy.step, 7);
}

TEST(Publisher, WithoutABoardEveryCallDoesNothing) {
  const Publisher none;
  const int members[] = {0, 1};
  none.set_step(1);
  none.set_phase(Phase::kForward, 2);
  none.begin_attempt(1);
  EXPECT_EQ(none.add_group("data", members, "host"), -1);
  none.start_collective(-1, 1);
  const Waiting waiting(none, -1, 0, Collective::kAllReduce, -1);
  EXPECT_FALSE(none);
}

TEST(Publisher, RanksOfAGroupGiveItOneIdentityAndOtherGroupsHaveOthers) {
  const auto first = empty_record(), second = empty_record();
  const Publisher a(first.get()), b(second.get());
  const int members[] = {0, 2}, others[] = {1, 3};
  a.add_group("data", members, "host");
  b.add_group("tensor", others, "host");  // stands before the same group in the other rank's table
  b.add_group("data", members, "host");
  EXPECT_EQ(first->groups[0].identity, second->groups[1].identity);
  EXPECT_NE(second->groups[0].identity, second->groups[1].identity);
  const int again = a.add_group("data", members, "host"), device = a.add_group("data", members, "device");
  EXPECT_NE(first->groups[again].identity, first->groups[0].identity);
  EXPECT_NE(first->groups[device].identity, first->groups[0].identity);
  EXPECT_EQ(b.add_group("data", members, "host"), 2);
  EXPECT_EQ(first->groups[again].identity, second->groups[2].identity) << "the second group with these members";
}

TEST(Publisher, ATableOfGroupsThatIsFullShowsNoFurtherOneUntilOneIsRemoved) {
  const auto record = empty_record();
  const Publisher board(record.get());
  for (int i = 0; i < static_cast<int>(kMaxGroups); ++i) EXPECT_EQ(board.add_group("g", {&i, 1}, "host"), i);
  const int members[] = {77};
  EXPECT_EQ(board.add_group("late", members, "host"), -1);
  board.start_collective(-1, 3);
  board.remove_group(5);
  EXPECT_EQ(board.add_group("late", members, "host"), 5);
}

}  // namespace
}  // namespace athanor::board
