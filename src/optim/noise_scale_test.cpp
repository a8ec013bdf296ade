#include "optim/noise_scale.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/random.h"

namespace athanor::noise_scale_test {
namespace {

using Vector = std::array<double, 3>;
constexpr Vector kGradient{2, -1, 0.5}, kDeviation{1, 3, 0.25};  // G, and the roots of the diagonal of Σ
constexpr double kSquared = 4 + 1 + 0.25, kVariance = 1 + 9 + 0.0625;

double square(const Vector& v) { return v[0] * v[0] + v[1] * v[1] + v[2] * v[2]; }

// What a step of `parts` parts of `each` sequences adds up, with gradients G ± the deviation in each direction.
PartSquares draw(const CounterRandom& random, uint64_t step, int64_t parts, int64_t each) {
  PartSquares squares{parts, 0, 0};
  const auto sequences = static_cast<double>(parts * each);
  Vector whole{};
  for (int64_t part = 0; part < parts; ++part) {
    Vector sum{};
    for (int64_t b = 0; b < each; ++b) {
      const uint64_t signs = random.u64(step * 1000 + static_cast<uint64_t>(part * each + b));
      for (size_t i = 0; i < 3; ++i)
        sum[i] += (kGradient[i] + (signs >> (20 + i) & 1 ? kDeviation[i] : -kDeviation[i])) / sequences;
    }
    squares.parts += square(sum);
    for (size_t i = 0; i < 3; ++i) whole[i] += sum[i];
  }
  squares.whole = square(whole);
  return squares;
}

TEST(NoiseScale, TheVarianceIsTheUnbiasedOneOfTheMeansOfTheParts) {
  // Two parts of two sequences with mean gradients 3 and 5, of which the step has the mean.
  const PartSquares squares{2, 1.5 * 1.5 + 2.5 * 2.5, 4.0 * 4.0};
  const NoiseEstimate found = estimate_noise({&squares, 1}, 4);
  EXPECT_DOUBLE_EQ(found.variance, 2 * 2.0) << "((3 - 4)² + (5 - 4)²) / (2 - 1), times the sequences of a part";
  EXPECT_DOUBLE_EQ(found.gradient_squared, 16 - 1.0) << "less the variance of a mean of four";
}

TEST(NoiseScale, TheMeansOfManyStepsAreTheKnownGradientAndVarianceForAnyNumberOfParts) {
  const CounterRandom random(1, "noise");
  constexpr int kSteps = 4000;
  for (const auto& [parts, each] : {std::pair<int64_t, int64_t>{2, 1}, {4, 2}, {8, 1}}) {
    double squared = 0, variance = 0, squared_2 = 0, variance_2 = 0;
    for (int step = 0; step < kSteps; ++step) {
      const PartSquares squares = draw(random, static_cast<uint64_t>(step), parts, each);
      const NoiseEstimate one = estimate_noise({&squares, 1}, parts * each);
      squared += one.gradient_squared / kSteps, squared_2 += one.gradient_squared * one.gradient_squared / kSteps;
      variance += one.variance / kSteps, variance_2 += one.variance * one.variance / kSteps;
    }
    // Five standard errors of a mean: one draw in two million is outside.
    const double of_squared = 5 * std::sqrt((squared_2 - squared * squared) / kSteps),
                 of_variance = 5 * std::sqrt((variance_2 - variance * variance) / kSteps);
    EXPECT_NEAR(squared, kSquared, of_squared) << parts;
    EXPECT_NEAR(variance, kVariance, of_variance) << parts;
    EXPECT_LT(of_squared, 0.2 * kSquared);
    EXPECT_LT(of_variance, 0.1 * kVariance);
  }
}

TEST(NoiseScale, GroupsOfParametersAddUpAndOneWithoutPartsIsLeftOut) {
  const std::vector<PartSquares> both{{2, 5, 8}, {4, 3, 7}}, more{{2, 5, 8}, {4, 3, 7}, {1, 100, 100}};
  const NoiseEstimate a = estimate_noise({&both[0], 1}, 8), b = estimate_noise({&both[1], 1}, 8);
  for (const auto& groups : {both, more}) {
    const NoiseEstimate all = estimate_noise(groups, 8);
    EXPECT_DOUBLE_EQ(all.variance, a.variance + b.variance);
    EXPECT_DOUBLE_EQ(all.gradient_squared, a.gradient_squared + b.gradient_squared);
  }
}

TEST(NoiseScale, TheScaleIsTheQuotientOfTheMeansAndNotTheMeanOfTheQuotients) {
  NoiseScale scale;
  EXPECT_TRUE(std::isnan(scale.value()));
  scale.add({-1, 6});
  EXPECT_TRUE(std::isnan(scale.value())) << "|G|² is not known yet";
  scale.add({3, 10});
  EXPECT_DOUBLE_EQ(scale.value(), 8);
  for (int i = 0; i < 2000; ++i) scale.add({5, 10});
  EXPECT_NEAR(scale.value(), 2, 1e-6) << "what came first is forgotten";
}

}  // namespace
}  // namespace athanor::noise_scale_test
