#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace athanor {

TEST(CounterRandom, DrawsDependOnSeedNameAndIndexAlone) {
  const CounterRandom a(1, "weight"), b(1, "weight"), other_seed(2, "weight"), other_name(1, "bias");
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(a.bits(i), b.bits(i));
    EXPECT_NE(a.bits(i), other_seed.bits(i));
    EXPECT_NE(a.bits(i), other_name.bits(i));
  }
}

TEST(CounterRandom, NormalHasMeanZeroAndVarianceOne) {
  const CounterRandom random(7, "normal");
  constexpr int kDraws = 200000;
  double sum = 0, squares = 0, fourth = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double x = random.normal(i);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // The bounds are five standard errors of each moment: 1/sqrt(n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(sum / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(fourth / kDraws, 3, 5 * std::sqrt(96.0 / kDraws));
}

TEST(CounterRandom, FillingARangeGivesTheSameNumbersWhereverItIsCut) {
  const CounterRandom random(7, "fill");
  for (const uint64_t begin : {0, 1, 5}) {
    for (const uint64_t end : {5, 6, 12}) {
      std::vector<float> filled(12);
      random.fill_normal(filled.data(), begin, end, 0.5);
      for (uint64_t i = begin; i < end; ++i) {
        EXPECT_EQ(filled[i - begin], static_cast<float>(random.normal(i) * 0.5)) << begin << " " << i;
      }
    }
  }
}

TEST(Permutation, IsABijectionWithAnInverseForEverySmallSize) {
  for (uint64_t size = 1; size < 300; ++size) {
    const Permutation permutation(size, 3, "epoch 0");
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t value = permutation(i);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[value]);
      seen[value] = true;
      ASSERT_EQ(permutation.inverse(value), i);
    }
  }
}

TEST(Permutation, SeedsAndNamesGiveDifferentOrders) {
  const Permutation a(1000, 1, "epoch 0"), b(1000, 2, "epoch 0"), c(1000, 1, "epoch 1");
  int same_b = 0, same_c = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    same_b += a(i) == b(i);
    same_c += a(i) == c(i);
  }
  EXPECT_LT(same_b, 10);  // about one fixed point is expected
  EXPECT_LT(same_c, 10);
}

TEST(Permutation, NeighboursLandFarApartOnAverage) {
  constexpr uint64_t kSize = 100000;
  const Permutation permutation(kSize, 5, "epoch 0");
  double distance = 0;
  for (uint64_t i = 0; i + 1 < kSize; ++i) {
    distance += std::abs(static_cast<double>(permutation(i)) - static_cast<double>(permutation(i + 1)));
  }
  // Two uniform draws are size/3 apart on average, with standard deviation size/sqrt(18) each.
  EXPECT_NEAR(distance / kSize, kSize / 3.0, 5 * kSize / std::sqrt(18.0 * kSize) * 2);
}

}  // namespace athanor
