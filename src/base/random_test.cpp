#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// ln(u) has an error of one ULP, its root half of that; the angle, the sine and the library's functions have others.
// Ten roundoffs are above their sum, and far below a bit of fp32.
TEST(CounterRandom, NormalIsTheFormulaOfTheLibraryUpToTenRoundoffs) {
  const CounterRandom random(3, "libm");
  int64_t other_floats = 0;
  for (uint64_t i = 0; i < 400000; ++i) {
    const auto b = random.bits(i / 2);
    const double u = (b[0] + 1.0 + (b[2] >> 12) * 0x1p-20) * 0x1p-32, turn = (b[1] + b[3] * 0x1p-32) * 0x1p-32;
    const double angle = 2 * std::acos(-1.0) * turn, radius = std::sqrt(-2 * std::log(std::min(u, 1.0)));
    const double expected = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)), actual = random.normal(i);
    ASSERT_LE(std::abs(actual - expected), 10 * 0x1p-53 * std::abs(expected)) << i;
    other_floats += static_cast<float>(actual) != static_cast<float>(expected);
  }
  EXPECT_LE(other_floats, 1);  // expected is 0.001: one number in 2^29 / 2 lies so near the middle of two floats
}

TEST(CounterRandom, LogarithmAndAnglesAreRightAtTheirEnds) {
  EXPECT_EQ(log_of_unit(1.0), 0.0);
  EXPECT_NEAR(log_of_unit(0x1p-32), -32 * std::log(2.0), 0x1p-50);
  for (const double u : {0x1.fffffffffffffp-1, 0x1.6a09e667f3bcdp-1, 0x1.6a09e667f3bccp-1, 0.5})
    EXPECT_NEAR(log_of_unit(u), std::log(u), 2 * 0x1p-53 * std::abs(std::log(u))) << u;
  for (int quarter = 0; quarter <= 4; ++quarter) {
    for (const double off : {-0x1p-50, -1e-9, 0.0, 1e-9, 0.78539816339744}) {
      const double angle = quarter * (std::acos(-1.0) / 2) + off;
      if (angle < 0 || angle > 7) continue;
      const auto [sine, cosine] = sine_and_cosine(angle);
      EXPECT_NEAR(sine, std::sin(angle), 3 * 0x1p-53 * std::abs(std::sin(angle))) << quarter << " " << off;
      EXPECT_NEAR(cosine, std::cos(angle), 3 * 0x1p-53 * std::abs(std::cos(angle))) << quarter << " " << off;
    }
  }
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
