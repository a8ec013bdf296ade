#include "tuning/rate_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/random.h"

namespace athanor::rate_range_test {
namespace {

RangeTest sweep(const RateRange& range, const std::function<double(double lr)>& step) {
  RangeTest test(range);
  while (!test.is_over()) test.add(step(test.next_rate()));
  return test;
}

// ½ Σ λ x² with noise in its gradients, as batches have it: the noise keeps every mode in motion, so that the fastest
// one shows when it is no longer stable, at a rate of 2 / λmax.
class NoisyQuadratic {
 public:
  explicit NoisyQuadratic(double largest, uint64_t seed) : largest_(largest), random_(seed, "quadratic") {}

  double step(double lr) {
    double loss = 0;
    for (size_t i = 0; i < kModes; ++i) {
      const double lambda = largest_ * std::pow(10, -3.0 * static_cast<double>(i) / (kModes - 1));
      loss += lambda * x_[i] * x_[i] / 2;
      x_[i] -= lr * (lambda * x_[i] + 0.5 * lambda * (2 * random_.uniform(draw_++) - 1));
    }
    return loss;
  }

 private:
  static constexpr size_t kModes = 16;
  double largest_;
  CounterRandom random_;
  uint64_t draw_ = 0;
  std::vector<double> x_ = std::vector<double>(kModes, 1.0);
};

TEST(RangeTest, FindsTheLimitOfStabilityOfAQuadraticWithinAFactorOf1_3) {
  for (const double largest : {0.01, 1.0, 300.0}) {
    for (const uint64_t seed : {1, 2, 3, 4, 5}) {
      NoisyQuadratic loss(largest, seed);
      const double limit = 2 / largest;
      const RangeResult found =
          sweep({limit * 1e-3, limit * 1e2, 250}, [&](double lr) { return loss.step(lr); }).result();
      ASSERT_TRUE(found.blow_up.has_value()) << found.fault;
      EXPECT_LT(*found.blow_up, 1.3 * limit) << largest << " " << seed;
      EXPECT_GT(*found.blow_up, limit / 1.3) << largest << " " << seed;
      EXPECT_EQ(*found.cautious(), *found.blow_up / 10);
      EXPECT_DOUBLE_EQ(*found.suggested() * *found.suggested(), *found.steepest * *found.cautious());
    }
  }
}

TEST(RangeTest, FindsTheSteepestDescentOfAKnownCurve) {
  // A step in log10 of the rate around 1e-2, whose slope is greatest there.
  const RateRange range{1e-5, 1, 200};
  int64_t step = 0;
  const auto curve = [&](double) { return 4 - 2 * std::tanh(2 * (std::log10(range.rate(step++ - 1)) + 2)); };
  const RangeTest test = sweep(range, curve);
  ASSERT_TRUE(test.result().steepest.has_value());
  EXPECT_LT(std::abs(std::log10(*test.result().steepest) + 2), 0.1);
  EXPECT_FALSE(test.result().blow_up.has_value());
  EXPECT_EQ(test.points().size(), 200u);
}

TEST(RangeTest, TheMeanOfTheLossIsCorrectedForItsBeginning) {
  const RangeTest test = sweep({1e-3, 1, 40}, [](double) { return 3.0; });
  for (const RangePoint& point : test.points()) EXPECT_NEAR(point.smoothed, 3.0, 40 * 3 * 0x1p-52);
}

TEST(RangeTest, StopsWhenTheLossHasBlownUp) {
  int64_t steps = 0;
  const auto loss = [&](double) { return ++steps < 50 ? 5.0 - 0.05 * static_cast<double>(steps) : 30.0; };
  const RangeTest test = sweep({1e-3, 1, 100}, loss);
  EXPECT_EQ(steps, 50);
  EXPECT_EQ(*test.result().blow_up, test.points().back().lr);
}

TEST(RangeTest, ALossThatIsNotFiniteHasBlownUp) {
  int64_t steps = 0;
  const auto loss = [&](double) { return ++steps < 30 ? 5.0 - 0.1 * static_cast<double>(steps) : NAN; };
  const RangeTest test = sweep({1e-3, 1, 100}, loss);
  EXPECT_EQ(steps, 30);
  EXPECT_EQ(*test.result().blow_up, test.points().back().lr);
}

TEST(RangeTest, ARangeThatDivergesAtOnceOrNeverMovesIsToldWithItsRemedyAndHasNoRateToTake) {
  int64_t steps = 0;
  const auto explodes = sweep({1, 10, 40}, [&](double) { return 2.0 * static_cast<double>(++steps); }).result();
  EXPECT_FALSE(explodes.steepest.has_value());
  EXPECT_TRUE(explodes.blow_up.has_value());
  EXPECT_FALSE(explodes.cautious().has_value());
  EXPECT_FALSE(explodes.suggested().has_value());
  EXPECT_NE(explodes.fault.find("--from"), std::string::npos) << explodes.fault;
  const auto still = sweep({1e-9, 1e-8, 40}, [](double) { return 2.0; }).result();
  EXPECT_FALSE(still.steepest.has_value());
  EXPECT_NE(still.fault.find("--to"), std::string::npos) << still.fault;
}

}  // namespace
}  // namespace athanor::rate_range_test
