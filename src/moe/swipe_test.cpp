#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "moe/balance.h"

namespace athanor::moe::swipe_test {
namespace {

int64_t swipe(std::span<int64_t> ids, int64_t k, int64_t num_experts) {
  return balance_group({.kind = Balance::kSwipe}, ids, {}, k, num_experts).moved;
}

// Draws k different experts for each token. `crowding` concentrates them on the first experts: 0 gives an even
// distribution, 1 leaves only the first k.
std::vector<int64_t> random_choices(int64_t tokens, int64_t k, int64_t experts, double crowding, uint64_t seed) {
  const CounterRandom random(seed, "choices");
  std::vector<int64_t> ids;
  const auto among = static_cast<int64_t>(static_cast<double>(k) + (1 - crowding) * static_cast<double>(experts - k));
  std::vector<int64_t> order(static_cast<size_t>(among));
  uint64_t draw = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    std::iota(order.begin(), order.end(), 0);
    for (size_t j = 0; j < static_cast<size_t>(k); ++j) {
      std::swap(order[j], order[j + random.below(draw++, order.size() - j)]);
      ids.push_back(order[j]);
    }
  }
  return ids;
}

std::vector<int64_t> loads_of(const std::vector<int64_t>& ids, int64_t experts) {
  std::vector<int64_t> loads(static_cast<size_t>(experts));
  for (const int64_t id : ids) ++loads[static_cast<size_t>(id)];
  return loads;
}

// Σ max(0, load − even share): this many choices have to move with any method.
int64_t overflow_of(const std::vector<int64_t>& ids, int64_t experts) {
  const int64_t share = static_cast<int64_t>(ids.size()) / experts;
  int64_t overflow = 0;
  for (const int64_t load : loads_of(ids, experts)) overflow += std::max<int64_t>(0, load - share);
  return overflow;
}

void expect_even_and_distinct(const std::vector<int64_t>& ids, int64_t k, int64_t experts) {
  const std::vector<int64_t> even(static_cast<size_t>(experts), static_cast<int64_t>(ids.size()) / experts);
  EXPECT_EQ(loads_of(ids, experts), even);
  for (size_t t = 0; t < ids.size(); t += static_cast<size_t>(k)) {
    std::vector<int64_t> of_token(ids.begin() + static_cast<int64_t>(t), ids.begin() + static_cast<int64_t>(t) + k);
    std::ranges::sort(of_token);
    ASSERT_EQ(std::ranges::adjacent_find(of_token), of_token.end()) << "token " << t / static_cast<size_t>(k);
  }
}

TEST(Swipe, LeavesEvenChoicesAsTheyAre) {
  std::vector<int64_t> ids = {0, 1, 2, 3, 1, 0, 3, 2};
  const auto before = ids;
  EXPECT_EQ(swipe(ids, 2, 4), 0);
  EXPECT_EQ(ids, before);
}

TEST(Swipe, KeepsTheFirstTokensOfAFullExpertAndMovesTheRest) {
  std::vector<int64_t> ids = {0, 0, 0, 0, 0, 0};  // six tokens, k = 1, all choose expert 0 of 3
  EXPECT_EQ(swipe(ids, 1, 3), 4);
  EXPECT_EQ(ids, (std::vector<int64_t>{0, 0, 1, 1, 2, 2}));
}

TEST(Swipe, PlacesBestChoicesOfLaterTokensBeforeSecondChoicesOfEarlierOnes) {
  // Expert 1 has room for two: both first choices get it, though token 0 named it too.
  std::vector<int64_t> ids = {0, 1, 1, 0, 1, 2};
  swipe(ids, 2, 3);
  expect_even_and_distinct(ids, 2, 3);
  EXPECT_EQ(ids, (std::vector<int64_t>{0, 2, 1, 0, 1, 2}));
}

TEST(Swipe, ExchangesWhereATokenAlreadyHasEveryExpertWithRoom) {
  // Both choices of the last token overflow, and only expert 2 has room, for two.
  std::vector<int64_t> ids = {0, 1, 0, 1, 0, 1};
  EXPECT_EQ(swipe(ids, 2, 3), overflow_of({0, 1, 0, 1, 0, 1}, 3));
  expect_even_and_distinct(ids, 2, 3);
}

TEST(Swipe, RefusesUnequalShares) {
  std::vector<int64_t> ids = {0, 1, 2};
  EXPECT_THROW(swipe(ids, 1, 2), Error);
}

TEST(Swipe, HasNothingToDoWithoutTokensOrWithEveryExpertChosen) {
  std::vector<int64_t> none, all = {2, 0, 1, 1, 2, 0};
  EXPECT_EQ(swipe(none, 2, 4), 0);
  const auto before = all;
  EXPECT_EQ(swipe(all, 3, 3), 0);
  EXPECT_EQ(all, before);
}

TEST(Swipe, IsExactlyEvenForRandomShapesAndMovesLittleMoreThanItMust) {
  const CounterRandom random(1, "shapes");
  int64_t moved = 0, least = 0;
  for (uint64_t round = 0; round < 2000; ++round) {
    const auto draw = [&](uint64_t which, uint64_t bound) {
      return static_cast<int64_t>(random.below(round * 8 + which, bound));
    };
    const int64_t experts = 1 + draw(0, 24), k = 1 + draw(1, static_cast<uint64_t>(experts));
    const int64_t tokens = experts / std::gcd(experts, k) * (1 + draw(2, 20));
    const double crowding = random.uniform(round * 8 + 3);
    auto ids = random_choices(tokens, k, experts, crowding, round);
    const auto before = ids;
    const int64_t must = overflow_of(ids, experts), did = swipe(ids, k, experts);
    SCOPED_TRACE(testing::Message() << experts << " experts, k " << k << ", " << tokens << " tokens, round " << round);
    expect_even_and_distinct(ids, k, experts);
    if (HasFailure()) return;
    EXPECT_GE(did, must);
    EXPECT_TRUE(k > 1 || did == must);  // a single choice is never in its own way
    moved += did;
    least += must;
    auto again = before;
    swipe(again, k, experts);
    EXPECT_EQ(again, ids);
  }
  RecordProperty("moved_over_least", std::to_string(static_cast<double>(moved) / static_cast<double>(least)));
  EXPECT_LE(static_cast<double>(moved), 1.01 * static_cast<double>(least));
}

TEST(Swipe, TakesLinearTime) {
  // The worst case: every token names the same experts, and all others except k have to be filled.
  const auto cpu_seconds = [] {  // time of this thread: other work on the machine does not count
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const auto seconds = [&](int64_t tokens) {
    auto ids = random_choices(tokens, 8, 64, 1, 1);
    const double start = cpu_seconds();
    swipe(ids, 8, 64);
    return cpu_seconds() - start;
  };
  double small = 1e9, large = 1e9;
  for (int i = 0; i < 5; ++i) {
    small = std::min(small, seconds(1 << 12));
    large = std::min(large, seconds(1 << 16));
  }
  RecordProperty("ns_per_choice", std::to_string(large * 1e9 / ((1 << 16) * 8)));
  EXPECT_LT(large, 16 * 6 * small);  // 16 times the tokens; quadratic time would be 256 times
}

}  // namespace
}  // namespace athanor::moe::swipe_test
