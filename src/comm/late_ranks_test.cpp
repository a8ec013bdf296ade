// Tests which ranks are reported as late and after what time: ranks at work, ranks that stop working, ranks that only
// wait for others.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/missing_ranks.h"
#include "comm/testing/collectives.h"
#include "comm/testing/rank_messages.h"
#include "comm/thread_ranks.h"

namespace athanor::comm::late_ranks_test {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kTimeout{400};

void nap(milliseconds time) { std::this_thread::sleep_for(time); }

std::vector<std::string> messages_of(int n, const std::function<void(World&)>& rank, milliseconds timeout = kTimeout) {
  return comm::messages_of(n, {.timeout = timeout}, rank);
}

void work(World& world, milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    world.note_work(1);
    nap(milliseconds(20));
  }
}

TEST(LateRanks, ARankThatNotesItsWorkIsWaitedForThroughManyTimeouts) {
  for (const std::string& message : messages_of(4, [](World& world) {
         const Tensor x = at::ones({4});
         if (world.rank() == 0) work(world, 5 * kTimeout);
         world.all().all_reduce(x).wait();
         require(x[0].item<float>() == 4, "the sum");
       })) {
    EXPECT_EQ(message, "");
  }
}

TEST(LateRanks, OneThatStopsWorkingIsNamedWhoeverSpeaks) {
  const auto messages = messages_of(4, [](World& world) {
    if (world.rank() == 0) return work(world, 3 * kTimeout);
    world.all().all_reduce(at::ones({4})).wait();
  });
  for (size_t r = 1; r < 4; ++r) {
    EXPECT_TRUE(has(messages[r], "missing: rank 0 (") && has(messages[r], "which has done no work for")) << messages[r];
    for (size_t other = 1; other < 4; ++other) EXPECT_FALSE(has(messages[r], fmt::format("rank {} (", other)));
  }
}

TEST(LateRanks, TheErrorHasTheMissingRankWithItsHostApartFromItsText) {
  std::vector<RankOnHost> missing;
  messages_of(4, [&](World& world) {
    if (world.rank() == 2) return;
    try {
      world.all().all_reduce(at::ones({4})).wait();
    } catch (const MissingRanks& error) {
      if (world.rank() == 0) missing = error.ranks();
    }
  });
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].rank, 2);
  EXPECT_NE(missing[0].host, "");
}

TEST(LateRanks, WorkOfOneDoesNotExcuseAnother) {
  const auto messages = messages_of(4, [](World& world) {
    if (world.rank() == 0) return work(world, 4 * kTimeout);
    if (world.rank() == 2) return;
    world.all().all_gather(at::ones({16}), at::ones({4})).wait();
  });
  for (const size_t r : {size_t{1}, size_t{3}}) EXPECT_TRUE(has(messages[r], "missing: rank 2 (")) << messages[r];
}

// Control messages are questions and answers.
TEST(LateRanks, InALargeGroupOneRankLooksAndTheOthersAskIt) {
  constexpr int kRanks = 24, kLate = 17;
  std::atomic<int64_t> to_late = 0;
  const ThreadNetwork network{.delivers = [&](int, int to, int tag) {
    if (tag == Wire::kControlTag && to == kLate) ++to_late;
    return true;
  }};
  std::vector<std::string> messages(kRanks);
  std::atomic<int> num_over = 0;
  run_ranks(
      kRanks,
      [&](World& world) {
        try {
          if (world.rank() != kLate) world.all().all_reduce(at::ones({100'000})).wait();
        } catch (const CommError& error) {
          messages[static_cast<size_t>(world.rank())] = error.what();
        }
        ++num_over;
        while (num_over < kRanks) nap(milliseconds(1));
      },
      {.timeout = kTimeout}, network);
  for (int r = 0; r < kRanks; ++r) {
    if (r == kLate) continue;
    EXPECT_TRUE(has(messages[static_cast<size_t>(r)], "missing: rank 17 (")) << messages[static_cast<size_t>(r)];
  }
  // If each rank looked itself, all 23 would ask the late one.
  EXPECT_LE(to_late, 2 * 6) << "those that asked it themselves";
}

TEST(LateRanks, IfTheFirstMemberIsLateTheOthersLookThemselves) {
  const auto messages = messages_of(20, [](World& world) {
    if (world.rank() == 0) return;
    world.all().all_reduce(at::ones({100'000})).wait();
  });
  for (size_t r = 1; r < 20; ++r) EXPECT_TRUE(has(messages[r], "missing: rank 0 (")) << messages[r];
}

TEST(LateRanks, AChainOfGroupsLeadsToTheOneThatIsLate) {
  const auto messages = messages_of(3, [](World& world) {
    const auto a = world.make_group({{0, 1}, {2}}, "alpha"), b = world.make_group({{0}, {1, 2}}, "beta");
    if (world.rank() == 0) return;
    if (world.rank() == 1) {
      nap(kTimeout / 2);  // so that rank 2 is the first to give up
      a->all_reduce(at::ones({4})).wait();
    }
    b->all_reduce(at::ones({4})).wait();
  });
  EXPECT_TRUE(has(messages[1], "missing: rank 0 (") && !has(messages[1], "rank 2")) << messages[1];
  EXPECT_TRUE(has(messages[2], "group beta") && has(messages[2], "missing: rank 0 (") &&
              has(messages[2], ", which rank 1 (") && has(messages[2], ") waits for in group alpha"))
      << messages[2];
}

TEST(LateRanks, AChainEndsAtWorkAsWell) {
  for (const std::string& message : messages_of(3, [](World& world) {
         const auto a = world.make_group({{0, 1}, {2}}, "alpha"), b = world.make_group({{0}, {1, 2}}, "beta");
         if (world.rank() == 0) work(world, 4 * kTimeout);
         a->all_reduce(at::ones({4})).wait();
         b->all_reduce(at::ones({4})).wait();
       })) {
    EXPECT_EQ(message, "");
  }
}

/// Returns the messages of two pipelines of two stages, whose first stages share a group in which rank 1 is late. Rank
/// 2 begins to wait for rank 0 after a pause.
std::vector<std::string> messages_of_two_pipelines(milliseconds pause) {
  return messages_of(4, [pause](World& world) {
    const auto pipeline = world.make_group({{0, 2}, {1, 3}}, "pipeline"),
               data = world.make_group({{0, 1}, {2, 3}}, "data");
    const Tensor x = at::ones({4});
    if (world.rank() == 1) return;
    if (world.rank() == 3) return;
    if (world.rank() == 2) {
      nap(pause);
      return pipeline->receive(x, 0).wait();
    }
    data->all_reduce(x).wait();
    pipeline->send(x, 1).wait();
  });
}

TEST(LateRanks, AStageThatWaitsForAMessageNamesTheRankThatKeepsItsNeighbour) {
  const auto messages = messages_of_two_pipelines(milliseconds(0));
  EXPECT_TRUE(has(messages[2], "receive of 16 bytes") && has(messages[2], "missing: rank 1 (") &&
              has(messages[2], "which rank 0 ("))
      << messages[2];
}

TEST(LateRanks, ARankThatHasGivenUpStillNamesTheOneItWaitedFor) {
  const auto messages = messages_of_two_pipelines(2 * kTimeout);
  EXPECT_TRUE(has(messages[0], "missing: rank 1 (")) << messages[0];
  EXPECT_TRUE(has(messages[2], "missing: rank 1 (") && has(messages[2], "which rank 0 (")) << messages[2];
}

TEST(LateRanks, AnAnswerWaitsForNoThreadOfTheRankThatIsAsked) {
  // The rank's caller computes all the time, and the questions of hundreds of ranks are answered meanwhile.
  const auto begin = std::chrono::steady_clock::now();
  const auto messages = messages_of(24, [](World& world) {
    if (world.rank() == 5) return;
    world.all().all_gather(at::ones({24 * 4}), at::ones({4})).wait();
  });
  for (size_t r = 0; r < 24; ++r) {
    if (r == 5) continue;
    EXPECT_TRUE(has(messages[r], "missing: rank 5 (") && !has(messages[r], "does not answer")) << messages[r];
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(LateRanks, RanksThatWaitForOneAnotherBlameNobody) {
  const auto messages = messages_of(2, [](World& world) {
    const auto a = world.make_group({{0, 1}}, "alpha"), b = world.make_group({{0, 1}}, "beta");
    (world.rank() == 0 ? a : b)->all_reduce(at::ones({4})).wait();
  });
  // The first rank that gives up ends a job. If the other looks later, the first has given up by then, and really is
  // late.
  const auto blames_nobody = [](const std::string& message) {
    return has(message, "no rank is late") && has(message, "wait for one another");
  };
  EXPECT_TRUE(std::ranges::any_of(messages, blames_nobody)) << messages[0] << "\n" << messages[1];
}

TEST(LateRanks, OneThatWasKeptWaitingItselfHasATimeoutOfItsOwnAfterwards) {
  // Rank 1 waits for rank 0's work, then computes; rank 2 has waited for rank 1 all the time.
  for (const std::string& message : messages_of(3, [](World& world) {
         const auto a = world.make_group({{0, 1}, {2}}, "alpha"), b = world.make_group({{0}, {1, 2}}, "beta");
         if (world.rank() == 0) work(world, 3 * kTimeout);
         a->all_reduce(at::ones({4})).wait();
         if (world.rank() == 1) nap(kTimeout * 3 / 4);
         b->all_reduce(at::ones({4})).wait();
       })) {
    EXPECT_EQ(message, "");
  }
}

TEST(LateRanks, ACollectiveThatWaitsInLineNamesWhoHoldsUpThoseBeforeIt) {
  const auto messages = messages_of(3, [](World& world) {
    if (world.rank() == 2) return;
    std::vector<Pending> pending;
    for (int i = 0; i < 100; ++i) pending.push_back(world.all().all_reduce(at::ones({4})));
    pending.back().wait();
  });
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(has(messages[r], "(number 99) of group world") && has(messages[r], "missing: rank 2 (")) << messages[r];
  }
}

}  // namespace
}  // namespace athanor::comm::late_ranks_test
