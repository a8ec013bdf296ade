#include "tuning/short_run.h"

#include <gtest/gtest.h>

#include "optim/schedule.h"
#include "tuning/sweep.h"

namespace athanor::short_run_test {
namespace {

constexpr int64_t kSteps = 2000, kBatch = 8, kSeqLen = 128, kShort = 100;

RunConfig config_of_run() {
  RunConfig config;
  config.data.path = "is-not-read";
  config.data.seq_len = kSeqLen;
  config.train.steps = kSteps;
  config.train.global_batch_size = kBatch;
  config.optimizer.lr = 1e-2;
  config.optimizer.min_lr = 1e-3;
  config.optimizer.warmup_steps = 200;
  return config;
}

// The same schedule counted in tokens.
RunConfig in_tokens(RunConfig config) {
  OptimizerConfig& o = config.optimizer;
  o.warmup_tokens = static_cast<double>(o.warmup_steps * kBatch * kSeqLen);
  o.schedule_tokens = static_cast<double>(kSteps * kBatch * kSeqLen);
  o.warmup_steps = 0;
  return config;
}

// The rate after a number of steps, counted from 1, of train.global_batch_size.
double rate_at(const RunConfig& run, int64_t step) {
  const int64_t tokens = step * run.train.global_batch_size * run.data.seq_len;
  return learning_rate(run.optimizer, {step, tokens}, run.train.steps);
}

TEST(ShortRun, EachStepOfASweepHasTheSweptRateWhateverTheScheduleCounts) {
  RunConfig endless = in_tokens(config_of_run());
  endless.optimizer.schedule_tokens = 1e12;
  endless.optimizer.warmup_tokens = 1e10;
  RunConfig late = config_of_run();
  late.optimizer.schedule = "wsd";
  late.optimizer.decay_steps = 500;
  late.optimizer.schedule_steps = 100'000;
  for (const RunConfig& config : {config_of_run(), in_tokens(config_of_run()), endless, late}) {
    const RunConfig sweep = sweep_config(config, kShort);
    for (const int64_t step : {1, 2, 50, 100}) EXPECT_EQ(rate_at(sweep, step), config.optimizer.lr) << step;
  }
}

TEST(ShortRun, ARunOfAGridHasTheRatesOfTheRunAtEachShareOfItsLengthWhateverTheScheduleCounts) {
  RunConfig late = config_of_run();
  late.optimizer.schedule_steps = 50 * kSteps;
  RunConfig late_in_tokens = in_tokens(config_of_run());
  late_in_tokens.optimizer.schedule_tokens *= 50;
  for (const RunConfig& config : {config_of_run(), in_tokens(config_of_run()), late, late_in_tokens}) {
    const RunConfig grid = grid_config(config, kShort, config.optimizer.lr);
    // All lengths are multiples of kSteps / kShort, so they are not rounded. What follows the warm-up depends on
    // quotients only; in the warm-up each of the two rates is rounded twice.
    for (const int64_t step : {1, 5, 10, 11, 50, 100}) {
      const double expected = rate_at(config, step * (kSteps / kShort));
      EXPECT_NEAR(rate_at(grid, step), expected, step <= 10 ? 4 * 0x1p-53 * expected : 0) << step;
    }
  }
}

TEST(ShortRun, AFinalDecayThatIsSetDoesNotBecomeTheUsualOne) {
  RunConfig config = config_of_run();
  config.optimizer.schedule = "wsd";
  config.optimizer.decay_steps = 5;
  EXPECT_EQ(short_run_config(config, kShort).optimizer.decay_steps, 1);
}

RunConfig with_ramp() {
  RunConfig config = config_of_run();
  config.train.batch_ramp = {{2, 1000 * 2 * kSeqLen}};  // half of the steps, a fifth of the sequences
  config.train.batch_ramp_lr = "linear";
  return config;
}

TEST(ShortRun, ARampIsLeftOutAndTheWarmUpIsAShareOfTheWholeRun) {
  const RunConfig run = short_run_config(with_ramp(), kShort);
  EXPECT_TRUE(run.train.batch_ramp.empty());
  EXPECT_EQ(run.train.global_batch_size, kBatch);
  EXPECT_EQ(run.train.steps, kShort);
  EXPECT_EQ(run.optimizer.lr, 1e-2);
  EXPECT_EQ(run.optimizer.min_lr, 1e-3);
  EXPECT_EQ(run.optimizer.warmup_steps, 10);
}

TEST(ShortRun, WithARampAScheduleInTokensKeepsItsShareOfTheTokensOfTheRun) {
  RunConfig config = with_ramp();
  const int64_t tokens = 1000 * (2 + kBatch) * kSeqLen;
  config.optimizer.warmup_steps = 0;
  config.optimizer.schedule_tokens = static_cast<double>(tokens);
  config.optimizer.warmup_tokens = static_cast<double>(tokens / 10);
  const OptimizerConfig found = short_run_config(config, kShort).optimizer;
  EXPECT_EQ(found.schedule_tokens, static_cast<double>(kShort * kBatch * kSeqLen));
  EXPECT_EQ(found.warmup_tokens, static_cast<double>(kShort * kBatch * kSeqLen / 10));
}

TEST(ShortRun, TheRatesOfGroupsKeepTheirRatiosOverAGrid) {
  RunConfig config = config_of_run();
  config.optimizer.groups.resize(2);
  config.optimizer.groups[0].lr = config.optimizer.lr / 4;
  config.optimizer.groups[1].weight_decay = 0;  // takes optimizer.lr
  const OptimizerConfig found = grid_config(config, kShort, 8 * config.optimizer.lr).optimizer;
  EXPECT_EQ(found.lr, 8 * config.optimizer.lr);
  EXPECT_EQ(found.groups[0].lr, found.lr / 4);  // powers of two round nothing
  EXPECT_EQ(found.groups[1].lr, 0);
}

TEST(ShortRun, ChangesToTheModelOfAFolderStayAllowed) {
  RunConfig config = config_of_run();
  config.checkpoint.allow_model_change = {"rope_theta"};
  EXPECT_EQ(short_run_config(config, kShort).checkpoint.allow_model_change, config.checkpoint.allow_model_change);
}

}  // namespace
}  // namespace athanor::short_run_test
