#include "run/lr_jump.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"

namespace athanor::lr_jump_test {
namespace {

RunConfig run_of(int64_t steps) {
  RunConfig config;
  config.train.steps = steps;
  config.train.global_batch_size = 8;
  config.data.seq_len = 64;
  config.optimizer.schedule = "cosine";
  config.optimizer.lr = 2e-3;
  config.optimizer.min_lr = 4e-5;
  config.optimizer.warmup_steps = 20;
  return config;
}

StageConfig phase(const char* name, int64_t steps, double lr = 0) {
  StageConfig config;
  config.name = name;
  config.steps = steps;
  config.lr = lr;
  return config;
}

TEST(LrJump, ACompleteRunThatIsMadeLongerJumpsAndIsToldTheKeyThatKeepsItsSchedule) {
  const RunConfig before = run_of(2000);
  RunConfig now = run_of(4000);
  const auto jump = find_lr_jump(before, now, 2000, 2000 * 512);
  ASSERT_TRUE(jump);
  EXPECT_DOUBLE_EQ(jump->before, 4e-5);
  EXPECT_GT(jump->now, 1e-3);
  EXPECT_SAYS(jump->text, "goes from 4e-05 to 0.00103");
  EXPECT_SAYS(jump->text, "train.steps was 2000, is 4000");
  EXPECT_SAYS(jump->text, "optimizer.schedule_steps = 2000 keeps the earlier schedule (4e-05 at this step)");
  now.optimizer.schedule_steps = 2000;
  EXPECT_FALSE(find_lr_jump(before, now, 2000, 2000 * 512));
}

TEST(LrJump, WhatTheScheduleItselfDoesIsNone) {
  RunConfig phases = run_of(300);
  phases.train.stages = {phase("a", 100), phase("b", 200, 1e-4)};
  for (const int64_t step : {1, 19, 20, 99, 100, 101, 299}) {
    EXPECT_FALSE(find_lr_jump(phases, phases, step, step * 512)) << step;
    EXPECT_FALSE(find_lr_jump(run_of(300), run_of(300), step, step * 512)) << step;
  }
  RunConfig warm = run_of(300);
  warm.optimizer.schedule = "constant";
  RunConfig longer = warm;
  longer.train.steps = 3000;
  EXPECT_FALSE(find_lr_jump(warm, longer, 300, 300 * 512)) << "a constant rate has no length";
}

TEST(LrJump, ARunThatIsMadeAStepLongerKeepsTheRateOfItsEnd) {
  for (const int64_t steps : {6, 8, 13}) {
    RunConfig before = run_of(steps), now = run_of(steps + 1);
    before.optimizer.warmup_steps = now.optimizer.warmup_steps = 1;
    EXPECT_FALSE(find_lr_jump(before, now, steps, steps * 512)) << steps;
  }
}

TEST(LrJump, APhaseIsNamedWithItsOwnKeyAndAnotherRateWithItsField) {
  RunConfig before = run_of(300);
  before.train.stages = {phase("a", 100), phase("b", 200)};
  RunConfig now = before;
  now.train.stages[1].steps = 800;
  const auto longer = find_lr_jump(before, now, 300, 300 * 512);
  ASSERT_TRUE(longer);
  EXPECT_SAYS(longer->text, "train.stages[1].schedule_steps = 200 keeps the earlier schedule");
  RunConfig higher = run_of(300);
  higher.optimizer.lr = 4e-3;
  const auto other = find_lr_jump(run_of(300), higher, 150, 150 * 512);
  ASSERT_TRUE(other);
  EXPECT_SAYS(other->text, "optimizer.lr was 0.002, is 0.004; set them back to keep the earlier schedule");
}

}  // namespace
}  // namespace athanor::lr_jump_test
