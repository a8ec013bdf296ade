// Starts far more operations than may be in flight together: their messages must not be mixed up.

#include "wire/sequence.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "comm/testing/collectives.h"
#include "comm/thread_ranks.h"

namespace athanor::comm::sequence_test {
namespace {

/// A small and cheap term: the sum over n ranks of r + call.
Tensor simple_term(int rank, int call, int64_t count) { return at::full({count}, rank + call, at::kFloat); }

void require_sum(const Tensor& x, int n, int call) {
  const double sum = n * call + n * (n - 1) / 2.0;
  require(x.eq(sum).all().item<bool>(), fmt::format("all_reduce {} of {} elements is wrong", call, x.numel()));
}

/// Starts `calls` all-reduces before it waits for any.
void many_in_flight(Communicator& group, int calls, const std::function<int64_t(int)>& count) {
  std::vector<Tensor> all;
  std::vector<Pending> pending;
  for (int call = 0; call < calls; ++call) {
    all.push_back(simple_term(group.rank(), call, count(call)));
    pending.push_back(group.all_reduce(all.back()));
  }
  for (Pending& one : pending) one.wait();
  for (int call = 0; call < calls; ++call) require_sum(all[static_cast<size_t>(call)], group.size(), call);
}

int64_t unequal(int call) {
  return call % 50 == 7 ? 3000 : 1 + call % 13;
}  // 3000 elements: by reduce-scatter and
   // all-gather

TEST(Sequence, ThousandsOfCollectivesOfOneGroupInFlightDoNotMix) {
  for (bool check : {false, true}) {
    const int calls = check ? 1500 : 3000;
    run_ranks(2, [&](World& world) { many_in_flight(world.all(), calls, [](int) { return 64; }); }, {.check = check});
    run_ranks(2, [&](World& world) { many_in_flight(world.all(), calls, unequal); }, {.check = check});
  }
}

TEST(Sequence, NorDoThoseOfSeveralGroupsWhateverTheNetworkDelays) {
  run_ranks(4,
            [](World& world) {
              const auto pairs = world.make_group({{0, 1}, {2, 3}}, "pairs");
              const auto across = world.make_group({{0, 2}, {1, 3}}, "across");
              std::vector<Tensor> sums;
              std::vector<Pending> pending;
              Communicator* groups[] = {&world.all(), pairs.get(), across.get()};
              for (int call = 0; call < 2400; ++call) {
                // Each rank starts the groups' calls in a different order, but those of one group in the same order.
                Communicator& group = *groups[(call + world.rank()) % 3];
                const int number = call / 3;
                sums.push_back(simple_term(group.rank(), number, unequal(number)));
                pending.push_back(group.all_reduce(sums.back()));
              }
              for (Pending& one : pending) one.wait();
              for (int call = 0; call < 2400; ++call) {
                const Communicator& group = *groups[(call + world.rank()) % 3];
                require_sum(sums[static_cast<size_t>(call)], group.size(), call / 3);
              }
            },
            {}, {.delivers = {}, .max_delay_polls = 3});
}

TEST(Sequence, NorDoMessagesBetweenPairsInEachDirection) {
  run_ranks(2,
            [](World& world) {
              const int me = world.rank(), other = 1 - me;
              const auto content = [](int from, int i) { return at::full({1 + i % 7}, from * 10000 + i, at::kInt); };
              std::vector<Tensor> received;
              std::vector<Pending> pending;
              for (int i = 0; i < 2500; ++i) {
                pending.push_back(world.all().send(content(me, i), other));
                received.push_back(at::empty({1 + i % 7}, at::kInt));
                pending.push_back(world.all().receive(received.back(), other));
              }
              for (size_t i = pending.size(); i-- > 0;) pending[i].wait();
              for (int i = 0; i < 2500; ++i) {
                require(same_bits(received[static_cast<size_t>(i)], content(other, i)), fmt::format("message {}", i));
              }
            },
            {}, {.delivers = {}, .max_delay_polls = 3});
}

TEST(Sequence, AHeldUpCollectiveIsNeverMetByOneOfTheSameTag) {
  // Messages of tag 0 take long: without the limit, a rank would start all other operations meanwhile.
  std::mutex mutex;
  std::map<std::pair<int, int>, std::set<int>> tags;  // tags by sender and receiver
  ThreadNetwork network{.delivers =
                            [&](int from, int to, int tag) {
                              std::lock_guard lock(mutex);
                              tags[{from, to}].insert(tag);
                              return true;
                            },
                        .max_delay_polls = 40};
  run_ranks(
      3, [](World& world) { many_in_flight(world.all(), 600, unequal); }, {}, network);
  for (const auto& [ends, used] : tags) {
    // Two groups of the world (the one for hosts' names, and all), with up to kMaxPhases each, and notes.
    EXPECT_LE(used.size(), static_cast<size_t>(2 * Sequence::kMaxPhases * Sequence::kWindow + 1));
  }
}

TEST(Sequence, TheTagsThatMpiPromisesAreEnoughForHundredsOfGroupsAndOneTooManyIsRefused) {
  const ThreadNetwork network{.delivers = {}, .max_delay_polls = 0, .max_tag = 32767};
  EXPECT_EQ(Members::num_groups(32767), 409);
  run_ranks(
      2,
      [](World& world) {
        std::vector<std::unique_ptr<Communicator>> groups;
        std::vector<Tensor> sums;
        std::vector<Pending> pending;
        for (int64_t i = 2; i < Members::num_groups(32767); ++i) {  // the world has taken two
          groups.push_back(world.make_group({{0, 1}}, fmt::format("group {}", i)));
          if (i % 40 > 1) continue;
          sums.push_back(simple_term(world.rank(), static_cast<int>(i), 5));
          pending.push_back(groups.back()->all_reduce(sums.back()));
        }
        for (Pending& one : pending) one.wait();
        const auto alone = world.make_group({{0}, {1}}, "alone");  // needs no tags
        bool refused = false;
        try {
          world.make_group({{0, 1}}, "one more");
        } catch (const CommError& error) {
          refused = std::string(error.what()).find("enough for 409") != std::string::npos;
        }
        require(refused, "a group without tags was made");
      },
      {}, network);
}

TEST(Sequence, WhatComesAfterAFailedCollectiveFailsAsWell) {
  std::atomic<int> num_over = 0;
  run_ranks(2, [&](World& world) {
    std::vector<Pending> pending;
    std::vector<Tensor> all;
    const int64_t count = world.rank() == 0 ? 100 : 60;
    for (int call = 0; call < 40; ++call) {
      all.push_back(at::ones({call == 3 ? count : 8}));
      all.push_back(at::empty({2 * all.back().numel()}));
      pending.push_back(world.all().all_gather(all.back(), all[all.size() - 2]));
    }
    for (const size_t call : {size_t{3}, size_t{39}}) {
      std::string said;
      try {
        pending[call].wait();
      } catch (const CommError& error) {
        said = error.what();
      }
      require(said.find("bytes") != std::string::npos, "no failure of call " + std::to_string(call) + ": " + said);
    }
    ++num_over;
    while (num_over < 2) std::this_thread::yield();  // whoever leaves takes its messages along
  });
}

}  // namespace
}  // namespace athanor::comm::sequence_test
