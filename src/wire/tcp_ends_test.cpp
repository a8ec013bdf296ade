// How a job over TCP ends: well, by a failure, or by the death of a rank; and how it does not begin.

#include <gtest/gtest.h>

#include <future>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/told_error.h"
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
    for (const auto begin = Clock::now(); Clock::now() - begin < 120s; std::this_thread::sleep_for(1ms)) {
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
  std::istringstream text(text_of(*ranks.place, 7));
  ranks.place->set("rank/7", "host7\n127.0.0.1 1 host7");
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

TEST(Meeting, ThoseThatHaveNotComeAreNamedByOneRankForAll) {
  MapMeeting place;
  std::vector<std::future<std::string>> coming;
  for (const int rank : {0, 2, 4, 6}) {
    coming.push_back(std::async(std::launch::async, [&place, rank] {
      try {
        meet(place, {rank, 20, "host", "here"}, 300ms);
        return std::string("it has met");
      } catch (const ToldError& error) {
        return std::string(error.what());
      }
    }));
  }
  testing::internal::CaptureStderr();
  for (auto& one : coming) {
    EXPECT_TRUE(one.get().starts_with(
        "these of 20 ranks have not come to the meeting at the map within 0.3 s: 1, 3, 5, 7, 8, 9, "
        "10, 11 and 8 more;"));
  }
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(printed.find("have not come"), printed.rfind("have not come")) << printed;
  EXPECT_NE(printed.find("have not come"), printed.npos);
  // Three read the size of the first, all wait, one looks for each rank, and those whose patience ended meanwhile, or
  // at most all, read what was decided.
  EXPECT_GE(place.num_gets, 3 + 4 + 20 + 1);
  EXPECT_LE(place.num_gets, 3 + 4 + 20 + 4);
}

TEST(Meeting, ThePatienceOfARankThatCameLaterEndsWithThatOfTheFirst) {
  MapMeeting place;
  const auto time_of = [&place](int rank, std::chrono::milliseconds patience) {
    const auto begin = Clock::now();
    EXPECT_THROW(meet(place, {rank, 3, "host", "here"}, patience), ToldError);
    return Clock::now() - begin;
  };
  auto first = std::async(std::launch::async, time_of, 1, 300ms);
  EXPECT_LT(time_of(2, 300s), 60s);
  first.get();
}

// Returns the refusal that each rank gets, in the order of `comers`, or "met".
std::vector<std::string> outcomes(MapMeeting& place, const std::vector<Comer>& comers) {
  std::vector<std::future<std::string>> coming;
  for (const Comer& me : comers) {
    coming.push_back(std::async(std::launch::async, [&place, me]() -> std::string {
      try {
        meet(place, me, 300s);
        return "met";
      } catch (const ConfigError& error) {
        return error.what();
      }
    }));
    if (&me == &comers.back()) break;
    place.get("rank/" + std::to_string(me.rank), 120s);  // they come in this order
    std::this_thread::sleep_for(50ms);                   // and this one now waits, or has met
  }
  std::vector<std::string> all;
  for (auto& one : coming) all.push_back(one.get());
  return all;
}

TEST(Meeting, TwoProcessesWithOneRankAreRefusedAtOnceWithBothHostsOnAllThatWait) {
  MapMeeting place;
  const auto begin = Clock::now();
  const auto said = outcomes(place, {{0, 3, "host0", ""}, {1, 3, "host1", ""}, {1, 3, "host2", ""}});
  for (const std::string& one : said) {
    EXPECT_TRUE(
        one.starts_with("two processes with RANK=1 have come to the meeting at the map, on host1 and on host2;"))
        << one;
  }
  EXPECT_LT(Clock::now() - begin, 60s);
}

TEST(Meeting, OtherSizesAreRefusedAtOnceWithBothRanksOnAllThatWait) {
  MapMeeting place;
  const auto begin = Clock::now();
  for (const std::string& one : outcomes(place, {{1, 3, "host1", ""}, {0, 2, "host0", ""}})) {
    EXPECT_TRUE(
        one.starts_with("the ranks at the map have other sizes of the job: rank 1 (host1) has WORLD_SIZE=3, and "
                        "rank 0 (host0) has WORLD_SIZE=2;"))
        << one;
  }
  EXPECT_LT(Clock::now() - begin, 60s);
}

TEST(Meeting, AProcessThatComesAfterTheMeetingIsRefusedAloneAndTheJobContinues) {
  MapMeeting place;
  const auto said = outcomes(place, {{0, 2, "host0", ""}, {1, 2, "host1", ""}, {1, 2, "host2", ""}});
  EXPECT_EQ(said[0], "met");
  EXPECT_EQ(said[1], "met");
  EXPECT_TRUE(said[2].starts_with("two processes with RANK=1")) << said[2];
  EXPECT_NE(place.get("job", 0ms)->front(), '!') << "a rank that reads late would be refused";
}

TEST(Meeting, TheFirstThatCameNamesThoseItWaitsForAndHowLong) {
  MapMeeting place;
  testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  auto third = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(600ms);
    meet(place, {2, 3, "host2", ""}, 10s, 200ms);
  });
  auto first = std::async(std::launch::async, [&] { meet(place, {0, 3, "host0", ""}, 10s, 200ms); });
  std::this_thread::sleep_for(50ms);
  meet(place, {1, 3, "host1", ""}, 10s, 200ms);
  third.get();
  first.get();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("waiting for ranks 2 of 3 at the map (0 s of at most 10 s)"), std::string::npos) << said;
  const auto most = (std::chrono::steady_clock::now() - begin) / 200ms;
  EXPECT_LE(std::ranges::count(said, '\n'), most) << "every 0.2 s, by one rank: " << said;
}

}  // namespace
}  // namespace athanor::comm::tcp_ends_test
