#include "model/sample.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace athanor::sample_test {
namespace {

Tensor logits_of(std::vector<double> probabilities) {
  return at::tensor(probabilities, at::kDouble).log().to(at::kFloat);
}

TEST(Sample, ZeroTemperatureTakesTheFirstOfTheLargest) {
  EXPECT_EQ(sample_token(at::tensor({1.0f, 3.0f, 3.0f, 2.0f}), {0.0, 1.0}, 0.99), 1);
}

TEST(Sample, DrawsFollowTheProbabilities) {
  const Tensor logits = logits_of({0.5, 0.3, 0.2});
  std::map<int64_t, int> count;
  for (int i = 0; i < 1000; ++i) ++count[sample_token(logits, {1.0, 1.0}, (i + 0.5) / 1000)];
  EXPECT_EQ(count[0], 500);
  EXPECT_EQ(count[1], 300);
  EXPECT_EQ(count[2], 200);
}

TEST(Sample, TopPKeepsTheSmallestSetThatReachesIt) {
  const Tensor logits = logits_of({0.2, 0.5, 0.3});
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE(sample_token(logits, {1.0, 0.79}, (i + 0.5) / 100), 0);
    EXPECT_EQ(sample_token(logits, {1.0, 0.4}, (i + 0.5) / 100), 1);
    EXPECT_EQ(sample_token(logits, {1.0, 0.0}, (i + 0.5) / 100), 1);
  }
}

TEST(Sample, LowTemperatureSharpens) {
  const Tensor logits = logits_of({0.6, 0.4});
  int first = 0;
  for (int i = 0; i < 1000; ++i) first += sample_token(logits, {0.5, 1.0}, (i + 0.5) / 1000) == 0;
  EXPECT_NEAR(first, 1000 * 0.36 / (0.36 + 0.16), 1.5);  // probabilities squared
}

}  // namespace
}  // namespace athanor::sample_test
