#include "moe/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"

namespace athanor::moe::balance_test {
namespace {

constexpr int64_t kExperts = 2;
// Six tokens with k = 1, all of which choose expert 0.
const std::vector<float> kScores = {.6f, .9f, .7f, .9f, .8f, .5f};  // scores of the choices

TEST(Capacity, ByScoreKeepsTheHighestAndOfEqualOnesTheEarlier) {
  std::vector<int64_t> ids(6, 0);
  const BalanceOptions options{Balance::kCapacity, 1, 1.0, CapacityOrder::kScore};
  EXPECT_EQ(balance_group(options, ids, kScores, 1, kExperts).dropped, 3);
  EXPECT_EQ(ids, (std::vector<int64_t>{~0, 0, ~0, 0, 0, ~0}));
  std::vector<int64_t> two(6, 0);
  EXPECT_EQ(balance_group({Balance::kCapacity, 1, 0.3, CapacityOrder::kScore}, two, kScores, 1, kExperts).dropped, 5);
  EXPECT_EQ(two, (std::vector<int64_t>{~0, 0, ~0, ~0, ~0, ~0}));
}

TEST(Capacity, NoExpertIsChosenMoreOftenThanTheLimitThatIsToldAndItIsReached) {
  constexpr int64_t kSequences = 6, kSeqLen = 5, kMany = 7;
  for (const int64_t group : {1, 2, 6}) {
    for (const double factor : {0.3, 1.0, 2.5, 100.0}) {
      const BalanceOptions options{Balance::kCapacity, group, factor, CapacityOrder::kPosition};
      std::vector<int64_t> ids(kSequences * kSeqLen, 3);  // all tokens choose expert 3
      const auto size = static_cast<size_t>(group * kSeqLen);
      for (size_t begin = 0; begin < ids.size(); begin += size)
        balance_group(options, std::span(ids).subspan(begin, size), {}, 1, kMany);
      EXPECT_EQ(most_choices_of_expert(options, kSequences, kSequences * kSeqLen, 1, kMany),
                std::ranges::count(ids, 3));
    }
  }
  // A rank that has two of the four sequences of a group may have all choices that the group's expert keeps.
  const BalanceOptions spread{Balance::kCapacity, 4, 1.0, CapacityOrder::kPosition};
  EXPECT_EQ(most_choices_of_expert(spread, 2, 2 * kSeqLen, 1, 4), 4 * kSeqLen / 4);
  EXPECT_EQ(most_choices_of_expert({Balance::kSwipe}, 2, 2 * kSeqLen, 1, 4), -1);
  EXPECT_EQ(most_choices_of_expert(spread, 0, 0, 1, 4), -1);
}

TEST(Capacity, ByPositionKeepsTheEarliestSoThatNoTokenDependsOnLaterOnes) {
  const BalanceOptions options{Balance::kCapacity, 1, 1.0, CapacityOrder::kPosition};
  std::vector<int64_t> ids(6, 0);
  EXPECT_EQ(balance_group(options, ids, kScores, 1, kExperts).dropped, 3);
  EXPECT_EQ(ids, (std::vector<int64_t>{0, 0, 0, ~0, ~0, ~0}));
  std::vector<int64_t> other = {0, 0, 0, 1, 1, 1};  // later tokens differ; the first three are treated the same
  EXPECT_EQ(balance_group(options, other, kScores, 1, kExperts).dropped, 0);
  EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + 3, other.begin()));
}

TEST(Capacity, ADroppedChoiceStillNamesItsExpertAndNoExpertTakesIt) {
  std::vector<int64_t> ids = {1, 1};
  balance_group({Balance::kCapacity, 1, 1.0, CapacityOrder::kPosition}, ids, std::vector<float>(2, .5f), 1, kExperts);
  EXPECT_EQ(ids[1], ~1);
  EXPECT_LT(ids[1], 0);
}

TEST(Capacity, IsRoundedUpAndNeverBelowOne) {
  EXPECT_EQ(expert_capacity(1.0, 10, 4), 3);
  EXPECT_EQ(expert_capacity(1.1, 100, 10), 11);  // not 12, though 1.1 is a little larger in binary
  EXPECT_EQ(expert_capacity(1e-9, 100, 10), 1);
  EXPECT_EQ(expert_capacity(1e300, 100, 10), 100);
}

TEST(Capacity, AScoreThatIsNoNumberIsDroppedFirst) {
  std::vector<int64_t> ids(40, 0);
  std::vector<float> scores(40, .5f);
  for (size_t t = 0; t < 40; t += 2) scores[t] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(balance_group({Balance::kCapacity, 1, 1.0, CapacityOrder::kScore}, ids, scores, 1, kExperts).dropped, 20);
  for (size_t t = 0; t < 40; ++t) EXPECT_EQ(ids[t], t % 2 == 0 ? ~0 : 0);
}

TEST(ForcedUniform, GivesEachTokenDifferentExpertsAndEachExpertTheSame) {
  constexpr int64_t kTokens = 12, kTopK = 3, kMany = 9;
  std::vector<int64_t> ids(kTokens * kTopK, 0), other(kTokens * kTopK);
  for (size_t c = 0; c < other.size(); ++c) other[c] = static_cast<int64_t>(c % 7);
  const BalanceOptions options{.kind = Balance::kForcedUniform};
  balance_group(options, ids, {}, kTopK, kMany);
  balance_group(options, other, {}, kTopK, kMany);
  EXPECT_EQ(ids, other);  // whatever was chosen
  for (int64_t e = 0; e < kMany; ++e) EXPECT_EQ(std::ranges::count(ids, e), kTokens * kTopK / kMany);
  for (size_t t = 0; t < ids.size(); t += kTopK) {
    EXPECT_TRUE(ids[t] != ids[t + 1] && ids[t + 1] != ids[t + 2] && ids[t] != ids[t + 2]);
  }
}

TEST(Balance, TakesNoTokensAsItTakesSome) {
  std::vector<int64_t> none;
  for (const Balance kind : {Balance::kNone, Balance::kCapacity, Balance::kSwipe, Balance::kForcedUniform}) {
    const auto counts = balance_group({.kind = kind}, none, {}, 2, 4);
    EXPECT_EQ(counts.moved + counts.dropped, 0);
  }
}

TEST(Balance, NamesOfKindsAreThoseOfTheConfiguration) {
  EXPECT_EQ(value_of<Balance>("forced_uniform"), Balance::kForcedUniform);
  EXPECT_EQ(value_of<CapacityOrder>("position"), CapacityOrder::kPosition);
  EXPECT_THROW(value_of<Balance>("even"), ConfigError);
  EXPECT_THROW(value_of<CapacityOrder>("random"), ConfigError);
}

}  // namespace
}  // namespace athanor::moe::balance_test
