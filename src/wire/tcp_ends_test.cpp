// How a job over TCP ends: well, by a failure, or by the death of a rank; and how it does not begin.

#include <gtest/gtest.h>

#include <future>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "wire/tcp_wire.h"
#include "wire/testing/tcp_ranks.h"

namespace athanor::comm::tcp_ends_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Finished = Wire::Finished;

/// Polls a rank until it throws or ends, and returns the error, or "exit code N".
std::string end_of(Wire& wire, bool after_failure) {
  std::vector<Finished> finished;
  try {
    for (const auto begin = Clock::now(); Clock::now() - begin < 10s; std::this_thread::sleep_for(1ms)) {
      after_failure ? wire.poll_after_failure() : wire.poll(finished);
    }
    return "nothing";
  } catch (const ProcessEnd& end) {
    return "exit code " + std::to_string(end.exit_code);
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::vector<std::string> ends_of(TcpRanks& ranks, bool after_failure = false) {
  std::vector<std::future<std::string>> ending;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks.wires[static_cast<size_t>(rank)]) continue;
    ending.push_back(
        std::async(std::launch::async, [&ranks, rank, after_failure] { return end_of(ranks[rank], after_failure); }));
  }
  std::vector<std::string> ends;
  for (auto& one : ending) ends.push_back(one.get());
  return ends;
}

TEST(TcpEnds, ADeathIsReportedToAllRanksWithItsHostWhoeverDies) {
  for (const int dead : {0, 3, 4, 9}) {
    TcpRanks ranks(10);
    for (int i = 0; i < 20; ++i) ranks.poll();
    ranks.wires[static_cast<size_t>(dead)].reset();  // closes its sockets, as the kernel does for a process
    const auto begin = Clock::now();
    const std::string expected = fmt::format("rank {} (host{}) has ended without a farewell", dead, dead);
    for (const std::string& end : ends_of(ranks)) EXPECT_TRUE(end.starts_with(expected)) << end;
    EXPECT_LT(Clock::now() - begin, 3s);  // the neighbours' grace and a few messages, and not the others' grace
  }
}

TEST(TcpEnds, ADeathIsReportedByAllIfTheFirstRanksDieTogether) {
  TcpRanks ranks(12);
  for (int i = 0; i < 20; ++i) ranks.poll();
  for (const size_t dead : {0, 1, 2, 3}) ranks.wires[dead].reset();  // all of one host
  for (const std::string& end : ends_of(ranks))
    EXPECT_NE(end.find("has ended without a farewell"), std::string::npos) << end;
}

TEST(TcpEnds, ARankThatCannotBeReachedIsNamedWithItsAddress) {
  TcpRanks ranks(8);
  for (int i = 0; i < 20; ++i) ranks.poll();
  std::istringstream text(*ranks.place->get("rank/7", 0ms));
  ranks.place->set("rank/7", "127.0.0.1 1 host7");
  const int data = 0;
  ranks[1].send(7, 0, &data, sizeof data, 1);
  const auto ends = ends_of(ranks);
  for (const std::string& end : ends)
    EXPECT_EQ(end, "rank 7 (host7) cannot be reached at 127.0.0.1:1: Connection refused");
}

TEST(TcpEnds, TheEndOfTheJobReachesAllRanksWithItsExitCode) {
  for (const int first : {0, 5}) {
    TcpRanks ranks(10);
    for (int i = 0; i < 20; ++i) ranks.poll();
    EXPECT_THROW(ranks[first].abort(74), ProcessEnd);
    ranks.wires[static_cast<size_t>(first)].reset();
    for (const std::string& end : ends_of(ranks)) EXPECT_EQ(end, "exit code 74");
  }
}

TEST(TcpEnds, AfterADeathItEndsProcessesThatDoNotEndByThemselvesAndTheLowestRankReportsIt) {
  TcpRanks ranks(6);
  for (int i = 0; i < 20; ++i) ranks.poll();
  ranks.wires[0].reset();
  ends_of(ranks);
  testing::internal::CaptureStderr();
  for (const std::string& end : ends_of(ranks, /*after_failure=*/true)) EXPECT_EQ(end, "exit code 78");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said,
            "rank 1 (host1): the network failed: rank 0 (host0) has ended without a farewell: it was killed, or it "
            "crashed\n");
}

TEST(TcpEnds, CloseReturnsWhenAllRanksHaveCalledItAndNoRankIsThenTakenForDead) {
  for (const int late : {0, 6}) {
    TcpRanks ranks(7);
    std::atomic<bool> called = false;
    std::vector<std::future<bool>> closing;
    for (int rank = 0; rank < 7; ++rank) {
      closing.push_back(std::async(std::launch::async, [&, rank] {
        if (rank == late) {
          std::this_thread::sleep_for(200ms);
          called = true;
        }
        ranks[rank].close();
        return called.load();
      }));
    }
    const auto begin = Clock::now();
    for (auto& one : closing) EXPECT_TRUE(one.get()) << "it returned before rank " << late << " had called it";
    EXPECT_LT(Clock::now() - begin, 3s) << "a connection did not end well";
  }
}

TEST(Meeting, ThoseThatHaveNotComeAreNamedByAllAndOneRankLooksForThem) {
  MapMeeting place;
  std::vector<std::future<std::string>> coming;
  for (const int rank : {0, 2, 4, 6}) {
    coming.push_back(std::async(std::launch::async, [&place, rank] {
      try {
        meet(place, rank, 20, "here", 300ms);
        return std::string("it has met");
      } catch (const CommError& error) {
        return std::string(error.what());
      }
    }));
  }
  for (auto& one : coming) {
    EXPECT_TRUE(one.get().starts_with(
        "these of 20 ranks have not come to the meeting at the map within 0.3 s: 1, 3, 5, 7, 8, 9, "
        "10, 11 and 8 more;"));
  }
  EXPECT_EQ(place.num_gets, 4 + 20 + 3);  // all wait, one looks for each rank, and the others read what it has found
}

TEST(Meeting, ARankThatComesTwiceIsRefused) {
  MapMeeting place;
  EXPECT_GT(meet(place, 0, 1, "here", 1s), 0);
  EXPECT_THROW(meet(place, 0, 1, "here", 1s), CommError);
}

}  // namespace
}  // namespace athanor::comm::tcp_ends_test
