#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/error_bound.h"

namespace athanor::kernels::cross_entropy_test {
namespace {

struct Result {
  std::vector<float> losses;
  std::vector<uint8_t> is_greedy;
  std::vector<float> gradient;
};

template <class T = float>
Result run(const std::vector<float>& logits, const std::vector<int64_t>& targets, float grad_scale) {
  const auto rows = static_cast<int64_t>(targets.size()), vocab = static_cast<int64_t>(logits.size()) / rows;
  std::vector<T> work(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) store(work[i], logits[i]);
  Result result{std::vector<float>(targets.size(), -1), std::vector<uint8_t>(targets.size()), {}};
  static_assert(sizeof(bool) == 1);
  cross_entropy(work.data(), targets.data(), result.losses.data(), reinterpret_cast<bool*>(result.is_greedy.data()),
                rows, vocab, grad_scale);
  for (const T x : work) result.gradient.push_back(load(x));
  return result;
}

TEST(CrossEntropy, OfEqualLogitsIsLogOfTheVocabulary) {
  for (const int64_t vocab : {1, 2, 15, 16, 17, 1000}) {
    const auto r = run(std::vector<float>(static_cast<size_t>(vocab), 3.0f), {vocab - 1}, 0);
    const double exact = std::log(static_cast<double>(vocab));
    EXPECT_LE(std::abs(r.losses[0] - exact), error_bound(exact, 0, 2)) << vocab;
  }
}

TEST(CrossEntropy, GreedyMeansTheFirstOfTheLargest) {
  const std::vector<float> logits = {1, 4, 4, 2, 4};
  for (int64_t target = 0; target < 5; ++target) {
    EXPECT_EQ(run(logits, {target}, 0).is_greedy[0], target == 1) << target;
    EXPECT_EQ(run<Bf16>(logits, {target}, 0).is_greedy[0], target == 1) << target;
  }
}

TEST(CrossEntropy, FindsTheLargestLogitWhereverItIs) {
  for (const int64_t vocab : {1, 7, 16, 17, 40}) {
    for (int64_t at = 0; at < vocab; ++at) {
      std::vector<float> logits(static_cast<size_t>(vocab), -5.0f);
      logits[at] = -1;
      EXPECT_TRUE(run(logits, {at}, 0).is_greedy[0]) << at << " of " << vocab;
    }
  }
}

TEST(CrossEntropy, WithoutATargetIsZeroWithZeroGradient) {
  const auto r = run({1, 2, 3, 4, 5, 6}, {kNoTarget, 2}, 1.0f);
  EXPECT_EQ(r.losses[0], 0.0f);
  EXPECT_FALSE(r.is_greedy[0]);
  EXPECT_EQ(std::vector<float>(r.gradient.begin(), r.gradient.begin() + 3), std::vector<float>(3, 0.0f));
  EXPECT_GT(r.losses[1], 0.0f);
}

TEST(CrossEntropy, WithoutAScaleLeavesTheLogitsAlone) {
  const std::vector<float> logits = {0.5f, -1, 2, 1, 1, 1};
  EXPECT_EQ(run(logits, {1, kNoTarget}, 0).gradient, logits);
}

TEST(CrossEntropy, SurvivesLogitsThatWouldOverflowAnExponential) {
  const auto r = run({1e30f, -1e30f, 0, 200, -200, 100}, {0, 0}, 1.0f);
  EXPECT_EQ(r.losses[0], 0.0f);
  EXPECT_EQ(r.losses[1], 0.0f);
  EXPECT_EQ(r.gradient, std::vector<float>(6, 0.0f));
  EXPECT_EQ(run({200, -200, 100}, {1}, 0).losses[0], 400.0f);
}

TEST(CrossEntropy, ANanLogitMakesTheLossNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t at = 0; at < 20; ++at) {
    std::vector<float> logits(20, 1.0f);
    logits[at] = nan;
    EXPECT_TRUE(std::isnan(run(logits, {3}, 1.0f).losses[0])) << at;
  }
}

TEST(CrossEntropy, EachRowsGradientSumsToZero) {
  std::vector<float> logits(3 * 50);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i) * 1.7f) * 4;
  const float scale = 0.125f;
  const auto r = run(logits, {0, 17, 49}, scale);
  for (int64_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < 50; ++i) sum += r.gradient[row * 50 + i];
    // Each probability has the 4 roundings of exp, those of the total and three more; the probabilities and the 1 sum
    // to 2.
    EXPECT_LE(std::abs(sum), error_bound(2 * scale, 0, 50 + 7)) << row;
  }
}

}  // namespace
}  // namespace athanor::kernels::cross_entropy_test
