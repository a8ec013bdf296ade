// What is reported when ranks do not do the same: in check mode, without it, and when a rank does not come at all.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/process.h"
#include "comm/testing/collectives.h"
#include "comm/testing/rank_messages.h"
#include "comm/thread_ranks.h"

namespace athanor::comm::group_faults_test {
namespace {

using std::chrono::milliseconds;

const WorldOptions kCheck{.timeout = milliseconds(20'000), .check = true};

TEST(GroupFaults, ADifferentCollectiveIsNamedOnEveryRankWithBothCalls) {
  const auto messages = messages_of(4, kCheck, [](World& world) {
    world.all().barrier();
    const Tensor x = at::ones({16}), part = at::ones({4});
    if (world.rank() == 2) {
      world.all().reduce_scatter(part, x).wait();
    } else {
      world.all().all_reduce(x).wait();
    }
  });
  for (const std::string& message : messages) {
    EXPECT_TRUE(has(message, "rank 0 (") && has(message, "calls all_reduce of 64 bytes (Float), sum")) << message;
    EXPECT_TRUE(has(message, "rank 2 (") && has(message, "calls reduce_scatter of 64 bytes (Float), sum")) << message;
    EXPECT_TRUE(has(message, "group world")) << message;
  }
}

TEST(GroupFaults, ADifferentSizeTypeRootOrReductionIsNamed) {
  const std::function<void(World&, bool)> calls[] = {
      [](World& w, bool odd) { w.all().all_reduce(at::ones({odd ? 8 : 16})).wait(); },
      [](World& w, bool odd) { w.all().all_reduce(at::ones({odd ? 8 : 16}, odd ? at::kDouble : at::kFloat)).wait(); },
      [](World& w, bool odd) { w.all().broadcast(at::ones({16}), odd ? 1 : 0).wait(); },
      [](World& w, bool odd) { w.all().all_reduce(at::ones({16}), odd ? Reduction::kMax : Reduction::kMean).wait(); }};
  const char* shown[] = {"32 bytes", "(Double)", "rank 1 of the group", "max"};
  for (size_t i = 0; i < 4; ++i) {
    for (const std::string& message : messages_of(3, kCheck, [&](World& w) { calls[i](w, w.rank() == 1); })) {
      EXPECT_TRUE(has(message, shown[i]) && has(message, "rank 1 (")) << i << ": " << message;
    }
  }
}

/// Returns the messages of all ranks of a checked uneven all-to-all. Each rank expects 2 rows from each; `change`
/// changes what a rank expects.
std::vector<std::string> messages_of_rows(int n, const std::function<void(int, std::vector<int64_t>&)>& change) {
  return messages_of(n, kCheck, [&](World& world) {
    const std::vector<int64_t> in_rows(static_cast<size_t>(n), 2);
    std::vector<int64_t> out_rows = in_rows;
    change(world.rank(), out_rows);
    const int64_t total = std::accumulate(out_rows.begin(), out_rows.end(), int64_t{0});
    world.all().all_to_all(at::empty({total, 4}), at::ones({2 * n, 4}), out_rows, in_rows).wait();
  });
}

TEST(GroupFaults, RowsThatDoNotMatchAreNamedOnEveryRank) {
  for (const std::string& message : messages_of_rows(5, [](int rank, auto&rows) { rows[2] += rank == 1 ? 3 : 0; })) {
    EXPECT_TRUE(has(message, "rank 2 (") && has(message, "with 3 rows fewer for rank 1 (")) << message;
  }
  const auto several = [](int rank, auto& rows) {
    if (rank == 3) rows = {2, 1, 0, 2, 1};
  };
  for (const std::string& message : messages_of_rows(5, several)) {
    EXPECT_TRUE(has(message, "the others call") && has(message, "4 rows more for rank 3 (")) << message;
  }
  const auto exchanged = [](int rank, auto& rows) {
    if (rank == 4) rows = {1, 3, 2, 2, 2};
  };
  for (const std::string& message : messages_of_rows(5, exchanged)) {
    EXPECT_TRUE(has(message, "other rows than several ranks expect")) << message;
  }
}

TEST(GroupFaults, CheckModeLetsRightCallsThrough) {
  for (const std::string& message : messages_of(4, kCheck, [](World& world) {
         const auto pairs = world.make_group({{0, 1}, {2, 3}}, "pairs");
         const Tensor x = at::ones({16}), y = at::ones({16});
         // The order differs between ranks: groups do not wait for each other, checked or not.
         Pending first, second;
         if (world.rank() % 2 == 0) {
           first = world.all().all_reduce(x);
           second = pairs->all_reduce(y);
         } else {
           second = pairs->all_reduce(y);
           first = world.all().all_reduce(x);
         }
         first.wait();
         second.wait();
         if (world.rank() == 0) world.all().send(x, 1).wait();
         if (world.rank() == 1) world.all().receive(x, 0).wait();
         world.all().barrier();
         require(x[0].item<float>() == 4 && y[0].item<float>() == 2, "sums");
       })) {
    EXPECT_EQ(message, "");
  }
}

TEST(GroupFaults, WithoutCheckModeAWrongSizeIsNamedByItsReceiver) {
  const auto messages = messages_of(2, {}, [](World& world) {  // long before any timeout
    const int64_t count = world.rank() == 0 ? 100 : 60;
    world.all().all_gather(at::empty({2 * count}), at::ones({count})).wait();
  });
  EXPECT_TRUE(has(messages[0], "rank 1 (") && has(messages[0], "sent 240 bytes where 400 were expected"))
      << messages[0];
  EXPECT_TRUE(has(messages[1], "rank 0 (") && has(messages[1], "sent more than the 240 bytes")) << messages[1];
}

TEST(GroupFaults, ATimeoutNamesWhoHasNotComeWhateverTheCollective) {
  const std::function<void(Communicator&)> collectives[] = {
      [](Communicator& all) { all.barrier(); }, [](Communicator& all) { all.all_reduce(at::ones({4})).wait(); },
      [](Communicator& all) { all.all_reduce(at::ones({40'000})).wait(); },
      [](Communicator& all) { all.broadcast(at::ones({4}), 3).wait(); },
      [](Communicator& all) { all.all_gather(at::ones({6 * 4}), at::ones({4})).wait(); }};
  for (size_t i = 0; i < 5; ++i) {
    // Rank 3 is alive, but is in another collective.
    const auto messages = messages_of(6, {.timeout = milliseconds(300)}, [&](World& world) {
      if (world.rank() != 3) collectives[i](world.all());
    });
    for (int r = 0; r < 6; ++r) {
      const std::string& message = messages[static_cast<size_t>(r)];
      if (message.empty()) {
        EXPECT_EQ(r, 3) << i << ": rank " << r << " is done without rank 3";
        continue;
      }
      EXPECT_TRUE(has(message, "missing: rank 3 (" + host_name() + ");")) << message;
      EXPECT_TRUE(has(message, "(number 0) of group world")) << message;
    }
  }
}

TEST(GroupFaults, ARankThatIsGoneDoesNotAnswer) {
  // No message of rank 1 arrives any more, as if its host were frozen.
  std::atomic<int> num_there = 0;
  const auto messages =
      messages_of(3, {.timeout = milliseconds(300)},
                  [&](World& world) {
                    ++num_there;
                    while (num_there < 3) std::this_thread::sleep_for(milliseconds(1));
                    if (world.rank() != 1) world.all().barrier();
                  },
                  {.delivers = [&](int from, int, int) { return num_there < 3 || from != 1; }, .max_delay_polls = 0});
  for (int r : {0, 2}) {
    const std::string& message = messages[static_cast<size_t>(r)];
    EXPECT_TRUE(has(message, "missing: rank 1 (") && has(message, "does not answer")) << message;
  }
}

TEST(GroupFaults, AMessageOfAPairThatDoesNotComeNamesTheOther) {
  const auto messages = messages_of(3, {.timeout = milliseconds(300)}, [](World& world) {
    if (world.rank() == 2) world.all().receive(at::ones({4}), 1).wait();
  });
  EXPECT_TRUE(has(messages[2], "receive of 16 bytes") && has(messages[2], "missing: rank 1 (")) << messages[2];
}

TEST(GroupFaults, SumsOfBytesAndMeansOfIntegersAreRefused) {
  run_ranks(2, [](World& world) {
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { world.all().all_reduce(at::ones({4}, at::kByte)).wait(); },
             [&] { world.all().all_reduce(at::ones({4}, at::kLong), Reduction::kMean).wait(); }}) {
      bool refused = false;
      try {
        call();
      } catch (const CommError&) {
        refused = true;
      }
      require(refused, "it was taken");
    }
  });
}

}  // namespace
}  // namespace athanor::comm::group_faults_test
