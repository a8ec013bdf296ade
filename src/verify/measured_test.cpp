#include "verify/measured.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace athanor::measured_test {
namespace {

// Returns sums of squares of `freedom` normal numbers.
double draw_noise(const CounterRandom& random, uint64_t& at, int freedom) {
  double sum = 0;
  for (int i = 0; i < freedom; ++i) {
    const double x = random.normal(at++);
    sum += x * x;
  }
  return sum;
}

TEST(NoiseRatio, OfAHundredThousandDrawsOfTheSameNoiseNextToNoneIsBeyondIt) {
  const CounterRandom random(3, "noise ratio");
  uint64_t at = 0;
  for (const int freedom : {3, 9, 48}) {
    const double bound = noise_ratio(freedom);
    int beyond = 0;
    for (int i = 0; i < 100'000; ++i) {
      const double layout = draw_noise(random, at, freedom), one = draw_noise(random, at, freedom);
      beyond += layout > bound * bound * one;
    }
    EXPECT_LE(beyond, 5) << freedom;  // at most one is expected; six occur once in 1,600 tests
  }
}

TEST(NoiseRatio, ItComesCloserToOneTheMoreNumbersAreCompared) {
  EXPECT_LT(noise_ratio(9), 7.1);
  EXPECT_LT(noise_ratio(48), 2.1);
  EXPECT_LT(noise_ratio(96), 1.7);
  EXPECT_GT(noise_ratio(1), 1e4) << "one number is hardly evidence";
}

TEST(PooledNoise, AnErrorTwiceTheNoiseIsBeyondItsBoundOnManyNumbersAndWithinOnFew) {
  PooledNoise few, many;
  few.add(4, 1, 0, 100, 4);
  for (int draw = 0; draw < 6; ++draw) many.add(4, 1, 0, 100, 16);
  EXPECT_LT(few.error(), few.bound());
  EXPECT_GT(many.error(), many.bound());
  EXPECT_DOUBLE_EQ(many.error(), 0.2);
}

TEST(PooledNoise, OneStepThatHasNearlyAllOfTheErrorIsAllThatIsCompared) {
  PooledNoise one, several;
  one.add(1, 1, 0, 1, 16), several.add(1, 1, 0, 1, 16);
  for (int step = 0; step < 5; ++step) several.add(1e-6, 1e-6, 0, 1e-6, 16);
  EXPECT_NEAR(several.bound(), one.bound(), 1e-4);
}

TEST(PooledNoise, WhatIsNotThereIsNotCounted) {
  PooledNoise noise, same;
  noise.add(1, 1, 0, 1, 16), same.add(1, 1, 0, 1, 16);
  noise.add(0, 0, 0, 0, 16);  // an expert without tokens
  EXPECT_EQ(noise.bound(), same.bound());
}

}  // namespace
}  // namespace athanor::measured_test
