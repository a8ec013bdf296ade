#include "moe/balance_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "comm/thread_ranks.h"
#include "moe/router.h"
#include "moe/testing/routing_numbers.h"
#include "ops/testing/op_testing.h"

namespace athanor::moe::balance_ranks_test {
namespace {

// Ranks as threads, which gather through shared memory.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks), barrier_(ranks), sent_(static_cast<size_t>(ranks)) {}

  GroupShare share(int index) {
    return {ranks_, index, [this, index](const Tensor& bytes) {
              ++gathers_;
              sent_[static_cast<size_t>(index)] = bytes.clone();
              barrier_.arrive_and_wait();
              const Tensor all = at::stack(sent_);
              barrier_.arrive_and_wait();
              return all;
            }};
  }
  int gathers() const { return gathers_; }

 private:
  int ranks_;
  std::barrier<> barrier_;
  std::vector<Tensor> sent_;
  std::atomic<int> gathers_ = 0;
};

// Tokens that mostly choose the same few experts; scores with many ties.
Tensor drawn_choices(const CounterRandom& random, int64_t tokens, int64_t k, int64_t num_experts) {
  const Tensor ids = at::empty({tokens, k}, at::kLong);
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int64_t> experts(static_cast<size_t>(num_experts));
    std::iota(experts.begin(), experts.end(), 0);
    for (int64_t j = 0; j < k; ++j) {
      const auto left = static_cast<uint64_t>(num_experts - j);
      const uint64_t draw = random.below(static_cast<uint64_t>(t * k + j), left * left);
      const auto at = static_cast<size_t>(std::min(draw / left, draw % left));
      ids[t][j] = experts[at];
      experts.erase(experts.begin() + static_cast<int64_t>(at));
    }
  }
  return ids;
}

Tensor drawn_scores(const CounterRandom& random, int64_t tokens, int64_t k) {
  const Tensor scores = at::empty({tokens, k}, at::kFloat);
  for (int64_t c = 0; c < tokens * k; ++c) {
    scores.data_ptr<float>()[c] = static_cast<float>(random.below(static_cast<uint64_t>(c), 5)) / 4;
  }
  return scores;
}

struct Outcome {
  Tensor ids;
  BalanceCounts counts;
  int gathers = 0;
};

Outcome on_ranks(const BalanceOptions& options, const Tensor& ids, const Tensor& scores, int ranks,
                 int64_t num_experts) {
  Meeting meeting(ranks);
  const Tensor out = ids.clone();
  const int64_t tokens = ids.size(0) / ranks;
  std::vector<BalanceCounts> counts(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      counts[static_cast<size_t>(r)] =
          balance_share(options, meeting.share(r), out.narrow(0, r * tokens, tokens),
                        options.needs_scores() ? scores.narrow(0, r * tokens, tokens) : Tensor(), num_experts);
    });
  }
  for (auto& thread : threads) thread.join();
  Outcome outcome{.ids = out, .counts = {}, .gathers = meeting.gathers()};
  for (const auto& of_rank : counts) {
    outcome.counts.moved += of_rank.moved;
    outcome.counts.dropped += of_rank.dropped;
  }
  return outcome;
}

TEST(BalanceRanks, SeveralRanksDecideAsOneWithAllTokensWould) {
  constexpr int64_t kTopK = 3, kExperts = 8, kTokens = 96;
  const CounterRandom random(7, "balance_ranks_test");
  const Tensor ids = drawn_choices(random, kTokens, kTopK, kExperts), scores = drawn_scores(random, kTokens, kTopK);
  for (const BalanceOptions& options :
       {BalanceOptions{Balance::kSwipe}, BalanceOptions{Balance::kForcedUniform},
        BalanceOptions{Balance::kCapacity, 1, 1.1, CapacityOrder::kScore},
        BalanceOptions{Balance::kCapacity, 1, 1.0, CapacityOrder::kPosition}, BalanceOptions{Balance::kNone}}) {
    const Tensor whole = ids.clone();
    const auto counts = balance_group(options, {whole.data_ptr<int64_t>(), static_cast<size_t>(whole.numel())},
                                      {scores.data_ptr<float>(), static_cast<size_t>(scores.numel())}, kTopK, kExperts);
    for (const int ranks : {1, 2, 3, 4, 8}) {
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(options.kind)) + " ranks " + std::to_string(ranks));
      const auto spread = on_ranks(options, ids, scores, ranks, kExperts);
      EXPECT_TRUE(at::equal(spread.ids, whole));
      EXPECT_EQ(spread.counts.moved, counts.moved);
      EXPECT_EQ(spread.counts.dropped, counts.dropped);
      const bool gathers = options.kind == Balance::kSwipe || options.kind == Balance::kCapacity;
      EXPECT_EQ(spread.gathers, gathers ? ranks : 0);  // one for each rank
    }
    EXPECT_EQ(at::equal(whole, ids), options.kind == Balance::kNone);
  }
}

TEST(BalanceRanks, GroupsWithoutTokensAreGatheredToo) {
  const Tensor none = at::empty({0, 2}, at::kLong);
  const auto spread = on_ranks({Balance::kSwipe}, none, {}, 2, 4);
  EXPECT_EQ(spread.gathers, 2);
  EXPECT_EQ(spread.counts.moved, 0);
}

// Returns a router that sends most tokens to few experts, so that balancing has much to do.
Weight uneven_router(int64_t num_experts, int64_t hidden) {
  Tensor value = ops::test::normal({num_experts, hidden}, 3);
  value.narrow(0, 0, 2).mul_(3);
  return ops::test::weight_of(value);
}

TEST(BalanceRanks, ARouterOverRanksDecidesAsOneThatHasAllSequences) {
  constexpr int64_t kSequences = 12, kTokens = 8, kHidden = 16, kExperts = 8, kTopK = 2;
  const Tensor x = ops::test::normal({kSequences * kTokens, kHidden}, 4);
  const Weight router = uneven_router(kExperts, kHidden);
  for (const Balance kind : {Balance::kSwipe, Balance::kCapacity, Balance::kForcedUniform}) {
    RouterOptions options{.k = kTopK};
    options.balance = {kind, kSequences, 1.0, CapacityOrder::kScore};
    const Routing whole = route(x, router, options, kSequences);
    const RoutingNumbers expected = numbers_of(whole);
    ASSERT_GT(expected.moved + expected.dropped, 0);
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + " ranks " + std::to_string(ranks));
      std::vector<Routing> parts(static_cast<size_t>(ranks));
      std::vector<int64_t> calls(static_cast<size_t>(ranks));
      comm::run_ranks(ranks, [&](comm::World& world) {
        RouterOptions own = options;
        own.balance_ranks = &world.all();
        const int64_t sequences = kSequences / ranks, tokens = sequences * kTokens;
        const auto rank = static_cast<size_t>(world.rank());
        const int64_t before = world.all().traffic().calls;
        parts[rank] = route(x.narrow(0, world.rank() * tokens, tokens), router, own, sequences);
        calls[rank] = world.all().traffic().calls - before;
      });
      std::vector<Tensor> ids, weights;
      int64_t moved = 0, dropped = 0;
      Tensor load = at::zeros({kExperts}, at::kLong);
      for (const Routing& part : parts) {
        ids.push_back(part.expert_ids_TK);
        weights.push_back(part.weights_TK);
        moved += numbers_of(part).moved;
        dropped += numbers_of(part).dropped;
        load += part.load_E;
        const Tensor to_rank = count_routings({part}, 2).to_rank;
        EXPECT_GT(to_rank.min().item<int64_t>(), 0);
        EXPECT_EQ(to_rank.size(1), 2);
      }
      EXPECT_TRUE(at::equal(at::cat(ids), whole.expert_ids_TK));
      EXPECT_TRUE(at::equal(at::cat(weights), whole.weights_TK));
      EXPECT_TRUE(at::equal(load, whole.load_E));
      EXPECT_EQ(moved, expected.moved);
      EXPECT_EQ(dropped, expected.dropped);
      EXPECT_EQ(calls, std::vector<int64_t>(static_cast<size_t>(ranks), kind == Balance::kForcedUniform ? 0 : 1));
    }
  }
}

TEST(BalanceRanks, WhatWasDecidedIsUsedAgainWithoutAWord) {
  const Tensor x = ops::test::normal({16, 16}, 4);
  const Weight router = uneven_router(8, 16);
  comm::run_ranks(2, [&](comm::World& world) {
    RouterOptions options{.k = 2};
    options.balance = {Balance::kSwipe, 2};
    options.balance_ranks = &world.all();
    const Routing first = route(x.narrow(0, world.rank() * 8, 8), router, options, 1);
    const Choices saved = first.choices();
    const int64_t calls = world.all().traffic().calls;
    const Routing again = route(x.narrow(0, world.rank() * 8, 8), router, options, 1, &saved);
    if (!at::equal(again.expert_ids_TK, first.expert_ids_TK)) throw Error("other choices");
    if (world.all().traffic().calls != calls) throw Error("it communicated");
  });
}

TEST(BalanceRanks, AGroupOfAnotherSizeThanItsRanksIsRefused) {
  const Tensor x = ops::test::normal({8, 16}, 4);
  const Weight router = uneven_router(8, 16);
  EXPECT_THROW(comm::run_ranks(2,
                               [&](comm::World& world) {
                                 RouterOptions options{.k = 2};
                                 options.balance = {Balance::kSwipe, 4};
                                 options.balance_ranks = &world.all();
                                 route(x, router, options, 1);
                               }),
               ConfigError);
}

}  // namespace
}  // namespace athanor::moe::balance_ranks_test
