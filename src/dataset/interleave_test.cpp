#include "dataset/interleave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace athanor::interleave_test {
namespace {

std::vector<std::vector<double>> mixes() {
  std::vector<std::vector<double>> all = {{1},
                                          {1, 1},
                                          {3, 1},
                                          {0.7, 0.3},
                                          {1, 1, 1},
                                          {0.5, 0.3, 0.2},
                                          {1e-9, 1},
                                          {1, 1e-300, 1},
                                          {1e300, 1e300},
                                          {5, 1, 1, 1, 1, 1},
                                          {0.6, 0.25, 0.1, 0.04, 0.01}};
  const CounterRandom random(1, "mixes");
  for (uint64_t i = 0; i < 40; ++i) {
    std::vector<double> weights(1 + random.below(1000 + i, 12));
    for (size_t j = 0; j < weights.size(); ++j) weights[j] = std::exp(4 * random.normal(100 * i + j));
    all.push_back(weights);
  }
  return all;
}

TEST(Interleave, AfterAnyNumberOfSamplesEachSourceHasItsShareToWithinOneSequence) {
  for (const auto& weights : mixes()) {
    const Interleave interleave(weights);
    std::vector<int64_t> drawn(weights.size());
    const double k = static_cast<double>(weights.size()), bound = k == 1 ? 0 : 1 - 1 / (2 * k - 2);
    for (int64_t n = 1; n <= 3000; ++n) {
      interleave.next(drawn);
      for (size_t i = 0; i < weights.size(); ++i) {
        const double owed = interleave.share(i) * static_cast<double>(n);
        ASSERT_LE(std::abs(static_cast<double>(drawn[i]) - owed), bound + 1e-9)
            << "source " << i << " of " << weights.size() << " after " << n;
      }
    }
  }
}

TEST(Interleave, NoSourceGivesMoreThanTheMostAndOneAloneGivesIt) {
  for (const auto& weights : mixes()) {
    const Interleave interleave(weights);
    std::vector<int64_t> drawn(weights.size());
    for (int64_t n = 1; n <= 3000; ++n) {
      interleave.next(drawn);
      for (size_t i = 0; i < weights.size(); ++i) {
        const int64_t most = interleave.most_drawn(i, n);
        ASSERT_LE(drawn[i], most) << "source " << i << " of " << weights.size() << " after " << n;
        ASSERT_LE(most, drawn[i] + (weights.size() > 1 ? 1 : 0));
      }
    }
  }
}

TEST(Interleave, AShareThatIsAWholeNumberOfSamplesIsTheMost) {
  const Interleave three({1, 1, 1}), tenths({0.7, 0.2, 0.1});
  EXPECT_EQ(three.most_drawn(0, 3'000'000'000), 1'000'000'000);
  EXPECT_EQ(three.most_drawn(0, 31), 11) << "one of three gives 11";
  EXPECT_EQ(tenths.most_drawn(0, 10'000'000'000), 7'000'000'000);
  EXPECT_EQ(tenths.most_drawn(2, 10'000'000'000), 1'000'000'000);
}

TEST(Interleave, AnyWindowOfTwoSourcesIsExactToWithinOneSequence) {
  for (const double weight : {1.0, 3.0, 0.123, 1e-3, 7.77}) {
    const Interleave interleave({weight, 1});
    std::vector<int64_t> drawn(2), before(2001);
    for (size_t n = 1; n <= 2000; ++n) {
      interleave.next(drawn);
      before[n] = drawn[0];
    }
    for (size_t begin = 0; begin < before.size(); ++begin) {
      for (size_t end = begin; end < before.size(); ++end) {
        const double owed = interleave.share(0) * static_cast<double>(end - begin);
        ASSERT_LE(std::abs(static_cast<double>(before[end] - before[begin]) - owed), 1 + 1e-9);
      }
    }
  }
}

TEST(Interleave, WholeWeightsAreExactAtEachPeriod) {
  const Interleave interleave({5, 3, 2});
  std::vector<int64_t> drawn(3);
  for (int64_t period = 1; period <= 100; ++period) {
    for (int i = 0; i < 10; ++i) interleave.next(drawn);
    EXPECT_EQ(drawn, (std::vector<int64_t>{5 * period, 3 * period, 2 * period}));
  }
}

TEST(Interleave, ItGoesOnFromItsCountsAlone) {
  const Interleave interleave({0.6, 0.25, 0.1, 0.05});
  std::vector<int64_t> whole(4), cut(4);
  for (int i = 0; i < 1000; ++i) {
    const auto expected = interleave.next(whole);
    std::vector<int64_t> copy = cut;
    ASSERT_EQ(Interleave({60, 25, 10, 5}).next(copy), expected);
    cut = copy;
  }
}

TEST(Interleave, NothingDriftsAfterBillionsOfSamples) {
  const Interleave interleave({0.7, 0.2, 0.1});
  std::vector<int64_t> drawn(3);
  const int64_t far = int64_t{1} << 50;
  for (size_t i = 0; i < 3; ++i) drawn[i] = std::llround(interleave.share(i) * static_cast<double>(far));
  const auto begin = drawn;
  for (int i = 0; i < 1000; ++i) interleave.next(drawn);
  EXPECT_NEAR(static_cast<double>(drawn[0] - begin[0]), 700, 2);
  EXPECT_NEAR(static_cast<double>(drawn[2] - begin[2]), 100, 2);
}

TEST(Interleave, WeightsThatAreNoneAreRefused) {
  EXPECT_THROW(Interleave({}), ConfigError);
  EXPECT_THROW(Interleave({1, 0}), ConfigError);
  EXPECT_THROW(Interleave({1, -1}), ConfigError);
  EXPECT_THROW(Interleave({1, NAN}), ConfigError);
  EXPECT_THROW(Interleave({1, INFINITY}), ConfigError);
}

}  // namespace
}  // namespace athanor::interleave_test
