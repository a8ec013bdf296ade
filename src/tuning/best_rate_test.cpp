#include "tuning/best_rate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace athanor::best_rate_test {
namespace {

// Losses of a parabola over log rate with its minimum at `lr`; all rates share the difficulty of each batch, and each
// has noise that the others do not have.
std::vector<RateLosses> parabola(double lr, double noise, uint64_t seed, const std::vector<double>& rates) {
  constexpr uint64_t kBatches = 10;
  const CounterRandom random(seed, "parabola");
  std::vector<RateLosses> grid;
  uint64_t draw = kBatches;
  for (const double rate : rates) {
    RateLosses at{rate, {}};
    for (uint64_t batch = 0; batch < kBatches; ++batch) {
      const double own = noise * (2 * random.uniform(draw++) - 1);
      at.losses.push_back(4 + 0.1 * std::pow(std::log(rate / lr), 2) + random.uniform(batch) + own);
    }
    grid.push_back(std::move(at));
  }
  return grid;
}

const std::vector<double> kRates = {1e-3, 2e-3, 4e-3, 8e-3, 16e-3};

TEST(BestRate, IsTheMinimumOfAParabolaWhateverTheBatchesHaveInCommon) {
  for (const double lr : {1.7e-3, 4e-3, 6.9e-3}) {
    const BestRate found = best_rate(parabola(lr, 0, 1, kRates));
    EXPECT_EQ(found.edge, 0);
    EXPECT_NEAR(std::log(found.lr / lr), 0, 1e-6);
    EXPECT_LT(found.log_error, 1e-6);
  }
}

TEST(BestRate, ItsUncertaintyIsTheScatterOverRepeatedRuns) {
  constexpr int kRepeats = 200;
  double squares = 0, claimed = 0;
  for (uint64_t seed = 0; seed < kRepeats; ++seed) {
    const BestRate found = best_rate(parabola(4e-3, 0.02, seed, kRates));
    squares += std::pow(std::log(found.lr / 4e-3), 2) / kRepeats;
    claimed += found.log_error / kRepeats;
  }
  // A mean square of 200 has a relative standard deviation of sqrt(2 / 200) = 0.1, its root of 0.05: five of them, and
  // as much for the claims, whose roots of 10 batches scatter by 1 / sqrt(2 · 9) each.
  EXPECT_NEAR(claimed / std::sqrt(squares), 1, 0.35);
}

TEST(BestRate, AtTheEdgeOfTheGridOnlyABoundIsKnown) {
  EXPECT_EQ(best_rate(parabola(1e-4, 0, 1, kRates)).edge, -1);
  EXPECT_EQ(best_rate(parabola(1e-1, 0, 1, kRates)).edge, 1);
}

TEST(BestRate, ANeighbourThatDivergedLeavesTheBracketOfTheGrid) {
  auto grid = parabola(4e-3, 0, 1, kRates);
  grid[3].losses.back() = NAN;
  const BestRate found = best_rate(grid);
  EXPECT_EQ(found.lr, 4e-3);
  EXPECT_NEAR(found.log_error, std::log(2) / std::sqrt(3), 1e-12);
}

std::vector<WidthRate> rates_of(double exponent, double log_error) {
  std::vector<WidthRate> rates;
  for (const int64_t width : {64, 128, 256})
    rates.push_back({width, {4e-3 * std::pow(static_cast<double>(width) / 64, exponent), log_error, 4, 0}});
  return rates;
}

TEST(Transfer, ExtrapolatesRatesThatFallWithTheWidth) {
  const Transfer found = transfer_to(1024, rates_of(-1, 0.05), /*scaled=*/false, 2);
  EXPECT_NEAR(found.exponent, -1, 1e-9);
  EXPECT_FALSE(found.stays);
  EXPECT_NEAR(found.lr, 4e-3 / 16, 1e-9);
  // Three points at ln 2 from one another: the slope's error is 0.05 / (sqrt(2) ln 2), over 3 ln 2 from their middle.
  EXPECT_NEAR(found.log_error, 0.05 * std::hypot(1 / std::sqrt(3.0), 3 / std::sqrt(2.0)), 1e-9);
}

TEST(Transfer, RatesThatStayAreAveraged) {
  const Transfer found = transfer_to(1024, rates_of(0, 0.05), /*scaled=*/true, 2);
  EXPECT_TRUE(found.stays);
  EXPECT_NEAR(found.lr, 4e-3, 1e-12);
  EXPECT_NEAR(found.log_error, 0.05 / std::sqrt(3.0), 1e-12);
}

TEST(Transfer, RatesThatScatterMoreThanTheirErrorsAreLessCertain) {
  auto rates = rates_of(0, 0.01);
  rates[1].best.lr *= 1.5;
  const Transfer found = transfer_to(1024, rates, /*scaled=*/true, 2);
  EXPECT_GT(found.log_error, 0.1);
}

}  // namespace
}  // namespace athanor::best_rate_test
