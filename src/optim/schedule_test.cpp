#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace athanor::schedule_test {
namespace {

constexpr const char* kSchedules[] = {"cosine", "linear", "constant", "wsd", "inverse_sqrt"};

OptimizerConfig config(const std::string& schedule) {
  OptimizerConfig c;
  c.schedule = schedule;
  c.lr = 1.0;
  c.min_lr = 0.1;
  c.warmup_steps = 10;
  return c;
}

// The same schedule in tokens, with 64 in a step.
OptimizerConfig in_tokens(OptimizerConfig c, int64_t steps) {
  c.warmup_tokens = 64.0 * static_cast<double>(std::exchange(c.warmup_steps, 0));
  c.decay_tokens = 64.0 * static_cast<double>(std::exchange(c.decay_steps, 0));
  c.schedule_tokens = 64.0 * static_cast<double>(steps);
  return c;
}

TEST(ScheduleLength, ARunThatEndsBeforeItsScheduleHasTheRatesOfTheWholeSchedule) {
  for (const char* name : kSchedules) {
    auto cut = config(name);
    cut.schedule_steps = 1000;
    for (int64_t step = 1; step <= 100; ++step)
      EXPECT_EQ(learning_rate(cut, {step}, 100), learning_rate(config(name), {step}, 1000)) << name << step;
  }
}

TEST(ScheduleLength, AfterTheEndOfItsScheduleARunKeepsMinLr) {
  for (const char* name : {"cosine", "linear", "wsd"}) {
    auto c = config(name);
    c.schedule_steps = 100;
    for (const int64_t step : {100, 101, 5000}) EXPECT_DOUBLE_EQ(learning_rate(c, {step}, 10'000), 0.1) << name << step;
  }
}

TEST(ScheduleLength, TokensGiveTheRatesOfTheirSteps) {
  for (const char* name : kSchedules) {
    for (const int64_t decay : {0, 30}) {
      auto c = config(name);
      c.decay_steps = decay;
      for (int64_t step = 1; step <= 120; ++step)  // a power of two scales every quotient exactly
        EXPECT_EQ(learning_rate(in_tokens(c, 100), {7, 64 * step}, 5), learning_rate(c, {step}, 100)) << name << step;
    }
  }
}

TEST(ScheduleLength, TheWarmUpEndsWithItsLastStepOrToken) {
  const auto c = config("cosine");
  EXPECT_TRUE(is_warming_up(c, {10, 1}));
  EXPECT_FALSE(is_warming_up(c, {11, 1}));
  EXPECT_TRUE(is_warming_up(in_tokens(c, 100), {99, 640}));
  EXPECT_FALSE(is_warming_up(in_tokens(c, 100), {1, 641}));
}

}  // namespace
}  // namespace athanor::schedule_test
