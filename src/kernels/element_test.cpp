#include "kernels/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/error_bound.h"

namespace athanor::kernels::element_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Returns |approximate − exact| in units of the last place of an fp32 number as large as `exact`.
double ulps(float approximate, double exact) {
  const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
  return std::abs(static_cast<double>(approximate) - exact) / ulp;
}

// Calls f with every `stride`-th float from −limit to −0.
template <class F>
void for_negative_floats(float limit, uint32_t stride, F f) {
  const uint32_t first = std::bit_cast<uint32_t>(-0.0f), last = std::bit_cast<uint32_t>(-limit);
  for (uint32_t bits = first; bits <= last; bits += stride) f(std::bit_cast<float>(bits));
  f(-limit);
}

TEST(ExpFast, IsWithinTwoUlpsFromMinus87ToZero) {
  double worst = 0;
  float worst_at = 0;
  for_negative_floats(87.0f, 101, [&](float x) {
    const double error = ulps(exp_fast(x), std::exp(static_cast<double>(x)));
    if (error > worst) worst = error, worst_at = x;
  });
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_LE(worst, 2.0) << "at " << worst_at;
}

TEST(ExpFast, IsZeroBelowMinus87) {
  for (const float x : {std::nextafter(-87.0f, -88.0f), -87.5f, -1e3f, -3e38f, -kInfinity})
    EXPECT_EQ(exp_fast(x), 0.0f);
  EXPECT_GT(exp_fast(-87.0f), 0.0f);
}

TEST(ExpFast, OfZeroIsExactlyOne) {
  EXPECT_EQ(exp_fast(0.0f), 1.0f);
  EXPECT_EQ(exp_fast(-0.0f), 1.0f);
}

TEST(ExpFast, NeverGrowsWhereItsArgumentFalls) {
  // Softmax relies on this: a smaller logit has no larger probability. Steps of 2^-12 are far above the error.
  float previous = exp_fast(0.0f);
  for (float x = 0; x >= -87.0f; x -= 0x1p-12f) {
    EXPECT_LE(exp_fast(x), previous) << x;
    previous = exp_fast(x);
  }
}

TEST(ExpFast, KeepsANan) { EXPECT_TRUE(std::isnan(exp_fast(kNan))); }

TEST(Sigmoid, IsWithinEightRoundingsOnBothSides) {
  // e has 2 ULP, that is 4 roundings, and moves σ by at most its own relative error; then come one addition and one
  // division.
  const double bound = error_bound(1.0, 0, 6);
  for_negative_floats(87.0f, 1009, [&](float x) {
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x)));
    ASSERT_LE(std::abs(sigmoid(x) - exact), bound * exact) << x;
    ASSERT_LE(std::abs(sigmoid(-x) - (1 - exact)), bound * (1 - exact)) << -x;
  });
}

TEST(Sigmoid, EndsAtZeroHalfAndOneWithoutOverflow) {
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(sigmoid(-3e38f), 0.0f);
  EXPECT_EQ(sigmoid(3e38f), 1.0f);
  EXPECT_TRUE(std::isnan(sigmoid(kNan)));
}

// Returns the nearest by distance in double; ties go to the even pattern. `bits` is finite, and so is its neighbour
// away from zero.
uint16_t nearest_bf16(float x) {
  const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);  // towards zero
  const auto above = static_cast<uint16_t>(below + 1);
  const double down = std::abs(double{x} - double{bf16_to_float(below)});
  const double up = std::abs(double{bf16_to_float(above)} - double{x});
  if (down != up) return down < up ? below : above;
  return below % 2 == 0 ? below : above;
}

TEST(Bf16, RoundsToNearestAndTiesToEvenFromEveryExponent) {
  for (uint32_t high = 0; high < 0x10000; ++high) {
    const uint32_t magnitude = high & 0x7FFF;
    if (magnitude >= 0x7F7F) continue;  // the last finite number, infinity and NaN have their own tests
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const auto x = std::bit_cast<float>(high << 16 | low);
      ASSERT_EQ(bf16_from_float(x), nearest_bf16(x)) << std::hex << (high << 16 | low);
    }
  }
}

TEST(Bf16, HalfwayCasesGoToTheEvenNeighbour) {
  EXPECT_EQ(bf16_from_float(0.568359375f), 0x3F12);   // halfway between 0x3F11 and 0x3F12
  EXPECT_EQ(bf16_from_float(0.5683592558f), 0x3F11);  // two ULPs below: no tie
  EXPECT_EQ(bf16_from_float(0.564453125f), 0x3F10);   // halfway between 0x3F10 and 0x3F11
  EXPECT_EQ(bf16_from_float(-0.568359375f), 0xBF12);
  EXPECT_EQ(bf16_from_float(1.99609375f), 0x4000);  // halfway, carries into the exponent
}

TEST(Bf16, OverflowsToInfinityAndKeepsInfinityAndNan) {
  const auto round_trip = [](float x) { return bf16_to_float(bf16_from_float(x)); };
  const auto largest = std::bit_cast<float>(0x7F7F0000u);
  EXPECT_EQ(round_trip(largest), largest);
  EXPECT_EQ(round_trip(std::bit_cast<float>(0x7F7F7FFFu)), largest);
  EXPECT_EQ(round_trip(std::bit_cast<float>(0x7F7F8000u)), kInfinity);
  EXPECT_EQ(round_trip(-kInfinity), -kInfinity);
  EXPECT_TRUE(std::isnan(round_trip(kNan)));
  EXPECT_TRUE(std::isnan(round_trip(std::bit_cast<float>(0x7F800001u))));  // a payload in the low half only
  EXPECT_TRUE(std::isnan(round_trip(std::bit_cast<float>(0xFFFFFFFFu))));
}

TEST(SumOver, AddsEachTermOnceAtEveryLength) {
  for (int64_t n = 0; n <= 3 * kLanes + 1; ++n) {
    EXPECT_EQ(sum_over(n, [](int64_t i) { return static_cast<float>(i + 1); }), static_cast<float>(n * (n + 1) / 2));
  }
}

TEST(SumOver, HasAnErrorWithinTheBoundOfItsLength) {
  for (const int64_t n : {1, 15, 16, 17, 100, 4096, 50304}) {
    std::vector<float> x(static_cast<size_t>(n));
    double exact = 0, norm = 0;
    for (int64_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(std::sin(static_cast<double>(i) * 12.9898));
      exact += x[i];
      norm += std::abs(x[i]);
    }
    const double sum = sum_over(n, [&](int64_t i) { return x[i]; });
    EXPECT_LE(std::abs(sum - exact), error_bound(norm, 0, n)) << n;
  }
}

TEST(ErrorBound, GrowsWithTheWorstCaseForShortSumsAndWithTheRootForLongOnes) {
  EXPECT_NEAR(sum_error(10), 10 * kRoundoffFp32, 1e-11);
  EXPECT_NEAR(sum_error(40000) / sum_error(10000), 2.0, 1e-12);
  for (int64_t n = 1; n < 1000; ++n) EXPECT_LT(sum_error(n), sum_error(n + 1));
}

}  // namespace
}  // namespace athanor::kernels::element_test
