#include <gtest/gtest.h>

#include <cmath>

#include "config/dump.h"
#include "config/testing/error_of.h"
#include "config/training_stages.h"

namespace athanor::batch_ramp_test {
namespace {

constexpr const char* kRamp = R"(
[model]
family = "olmo"
[data]
path = "books"
seq_len = 10
[train]
steps = 100
global_batch_size = 16
micro_batch_size = 2
[[train.batch_ramp]]
sequences = 4
until_tokens = 100
[[train.batch_ramp]]
sequences = 8
until_tokens = 2e2
[optimizer]
lr = 1e-3
min_lr = 1e-4
warmup_steps = 5
)";

void expect_refused(const std::vector<std::string>& overrides, const std::string& part) {
  const std::string error = error_of(kRamp, overrides);
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(BatchRamp, ASizeLastsUpToTheFirstStepThatReachesItsTokens) {
  const auto parts = training_stages(parse_run_config(kRamp, "run.toml"));
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].end(), 3) << "40, 80, 120 tokens";
  EXPECT_EQ(parts[1].end(), 4) << "200 tokens";
  EXPECT_EQ(parts[2].end(), 100);
  EXPECT_EQ(parts[0].config.train.global_batch_size, 4);
  EXPECT_EQ(parts[1].config.train.global_batch_size, 8);
  EXPECT_EQ(parts[2].config.train.global_batch_size, 16);
  EXPECT_EQ(parts[1].name, "batch of 8");
}

TEST(BatchRamp, TheScheduleOfTheRunContinuesOverItsParts) {
  for (const auto& part : training_stages(parse_run_config(kRamp, "run.toml"))) {
    EXPECT_EQ(part.schedule_begin, 0);
    EXPECT_EQ(count_schedule_steps(part.config), 100);
    EXPECT_EQ(part.config.optimizer.warmup_steps, 5);
    EXPECT_EQ(part.config.optimizer.lr, 1e-3);
  }
  const auto cut = training_stages(parse_run_config(kRamp, "run.toml", {"optimizer.schedule_steps=5000"}));
  EXPECT_EQ(count_schedule_steps(cut[0].config), 5000);
}

TEST(BatchRamp, TheLearningRateMayFollowTheBatch) {
  const auto parts_with = [](const std::string& how) {
    return training_stages(parse_run_config(kRamp, "run.toml", {"train.batch_ramp_lr=" + how}));
  };
  EXPECT_DOUBLE_EQ(parts_with("linear")[0].config.optimizer.lr, 1e-3 / 4);
  EXPECT_DOUBLE_EQ(parts_with("linear")[0].config.optimizer.min_lr, 1e-4 / 4);
  EXPECT_DOUBLE_EQ(parts_with("sqrt")[1].config.optimizer.lr, 1e-3 * std::sqrt(0.5));
  for (const char* how : {"linear", "sqrt", "none"}) EXPECT_EQ(parts_with(how)[2].config.optimizer.lr, 1e-3) << how;
}

TEST(BatchRamp, TheTokensOfStepsAreThoseOfTheirSizes) {
  const auto parts = training_stages(parse_run_config(kRamp, "run.toml"));
  const auto between = [&](int64_t from, int64_t to) {
    int64_t tokens = 0;
    for (const auto& part : parts) tokens += part.tokens_between(from, to);
    return tokens;
  };
  EXPECT_EQ(between(0, 3), 120);
  EXPECT_EQ(between(2, 5), 40 + 80 + 160);
  EXPECT_EQ(between(0, 100), 120 + 80 + 96 * 160);
  EXPECT_EQ(between(50, 50), 0);
}

TEST(BatchRamp, ARunMayEndWithinIt) {
  const auto parts =
      training_stages(parse_run_config(kRamp, "run.toml", {"train.steps=2", "optimizer.warmup_steps=1"}));
  EXPECT_EQ(parts[0].tokens_between(0, 2), 80);
  EXPECT_GE(parts.back().end(), 2);
}

TEST(BatchRamp, IsDumpedAndReadBack) {
  const auto config = parse_run_config(kRamp, "run.toml", {"train.batch_ramp_lr=sqrt"});
  const std::string dumped = dump_run_config(config, true);
  EXPECT_EQ(dump_run_config(parse_run_config(dumped, "dumped"), true), dumped);
}

TEST(BatchRamp, AMicrobatchThatNobodySetDividesEverySize) {
  const std::string text = "[model]\nfamily = \"olmo\"\n[data]\nseq_len = 10\n";
  const auto config = parse_run_config(
      text, "run.toml", {"train.global_batch_size=12", "train.batch_ramp=[{sequences = 6, until_tokens = 1e3}]"});
  EXPECT_EQ(config.train.micro_batch_size, 3);
}

TEST(BatchRamp, WhatCannotBeIsRefused) {
  expect_refused({"data.seq_len=0"}, "train.batch_ramp counts tokens, and data.seq_len is 0");
  expect_refused({"train.stages=[{steps = 100}]"}, "train.batch_ramp and train.stages are both set");
  expect_refused({"train.batch_ramp=[{until_tokens = 100}]"}, "train.batch_ramp[0].sequences is missing");
  expect_refused({"train.batch_ramp=[{sequences = 4}]"}, "train.batch_ramp[0].until_tokens is missing");
  expect_refused({"train.batch_ramp=[{sequences = 0, until_tokens = 100}]"},
                 "train.batch_ramp[0].sequences: expected an integer from 1 to 16777216, got 0");
  expect_refused({"train.batch_ramp=[{sequences = 4, until_tokens = 0}]"},
                 "train.batch_ramp[0].until_tokens: expected a whole number from 1 to 9.01e+15, such as 1e12, got 0");
  expect_refused({"train.batch_ramp=[{sequences = 16, until_tokens = 100}]"},
                 "train.batch_ramp[0].sequences (16) must be between the size before it (0) and "
                 "train.global_batch_size (16)");
  expect_refused({"train.batch_ramp=[{sequences = 8, until_tokens = 100}, {sequences = 4, until_tokens = 200}]"},
                 "train.batch_ramp[1].sequences (4) must be between the size before it (8)");
  expect_refused({"train.micro_batch_size=8"},
                 "train.micro_batch_size (8) must divide train.batch_ramp[0].sequences (4)");
  expect_refused(
      {"train.batch_ramp=[{sequences = 4, until_tokens = 100}, {sequences = 8, until_tokens = 120}]"},
      "train.batch_ramp[1].until_tokens (120) leaves it no step: the size before it holds up to 100, and its "
      "last step ends at 120 tokens");
  expect_refused({"train.batch_ramp=[]", "train.batch_ramp_lr=sqrt"}, "train.batch_ramp_lr \"sqrt\" needs a ramp");
  expect_refused({"train.batch_ramp=[{sequences = 4, until_tokens = 0.5}]"},
                 "train.batch_ramp[0].until_tokens: expected a whole number");
}

TEST(ScheduleLength, StepsAndTokensAreNotMixed) {
  const auto refused = [](const std::vector<std::string>& overrides, const std::string& part) {
    const std::string error = error_of("[model]\nfamily = \"olmo\"\n[train]\nsteps = 100\n", overrides);
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  refused({"optimizer.schedule_steps=200", "optimizer.schedule_tokens=1e9"}, "are both set; keep one");
  refused({"optimizer.warmup_steps=5", "optimizer.schedule_tokens=1e9"}, "use optimizer.warmup_tokens");
  refused({"optimizer.decay_steps=5", "optimizer.schedule_tokens=1e9"}, "use optimizer.decay_tokens");
  refused({"optimizer.warmup_tokens=5"}, "optimizer.warmup_tokens (5) needs optimizer.schedule_tokens");
  refused({"optimizer.decay_tokens=5"}, "optimizer.decay_tokens (5) needs optimizer.schedule_tokens");
  refused({"optimizer.schedule_tokens=10", "optimizer.warmup_tokens=11"}, "is beyond optimizer.schedule_tokens (10)");
  refused({"optimizer.schedule_tokens=10", "train.stages=[{steps = 100}]"}, "is a schedule of the whole run");
  refused({"optimizer.schedule_steps=20", "optimizer.warmup_steps=21"},
          "optimizer.warmup_steps (21) is beyond schedule_steps (20)");
  refused({"optimizer.schedule_tokens=1.5"}, "optimizer.schedule_tokens: expected a whole number");
}

TEST(ScheduleLength, AWarmUpThatNobodySetFollowsFromTheSchedule) {
  const auto with = [](const std::vector<std::string>& overrides) {
    return parse_run_config("[model]\nfamily = \"olmo\"\n[train]\nsteps = 100\n", "run.toml", overrides).optimizer;
  };
  EXPECT_EQ(with({}).warmup_steps, 10);
  EXPECT_EQ(with({"optimizer.schedule_steps=500"}).warmup_steps, 50);
  EXPECT_EQ(with({"train.stages=[{steps = 50, schedule_steps = 300}, {steps = 50}]"}).warmup_steps, 30);
  EXPECT_EQ(with({"optimizer.schedule_tokens=1e9"}).warmup_steps, 0);
  EXPECT_EQ(with({"optimizer.schedule_tokens=1e9"}).warmup_tokens, 1e7);
  EXPECT_EQ(with({"optimizer.schedule_tokens=1e9", "optimizer.warmup_tokens=0"}).warmup_tokens, 0);
  EXPECT_EQ(with({"optimizer.schedule_steps=500", "optimizer.warmup_steps=400"}).warmup_steps, 400)
      << "a run may end within the warm-up of its schedule";
}

TEST(ScheduleLength, APhaseHasItsOwn) {
  const auto stages = training_stages(
      parse_run_config("[model]\nfamily = \"olmo\"\n", "run.toml",
                       {"optimizer.schedule_steps=500",
                        "train.stages=[{steps = 50}, {steps = 20}, {steps = 10, schedule_steps = 40}]"}));
  EXPECT_EQ(count_schedule_steps(stages[0].config), 500);
  EXPECT_EQ(count_schedule_steps(stages[1].config), 20);
  EXPECT_EQ(count_schedule_steps(stages[2].config), 40);
  EXPECT_EQ(stages[2].schedule_begin, 70);
}

}  // namespace
}  // namespace athanor::batch_ramp_test
