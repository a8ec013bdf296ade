#include "config/defaults.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "config/dump.h"
#include "config/families.h"
#include "config/testing/error_of.h"
#include "config/training_stages.h"

namespace athanor::defaults_test {
namespace {

constexpr const char* kBase = "[model]\nnum_experts = 16\nnum_experts_per_tok = 4\n";

RunConfig with(const std::vector<std::string>& overrides) { return parse_run_config(kBase, "run.toml", overrides); }

TEST(Defaults, AWarmupThatNobodySetIsATenthOfAShortRun) {
  EXPECT_EQ(with({}).optimizer.warmup_steps, 100);
  EXPECT_EQ(with({"train.steps=5000"}).optimizer.warmup_steps, 100);
  EXPECT_EQ(with({"train.steps=500"}).optimizer.warmup_steps, 50);
  EXPECT_EQ(with({"train.steps=19"}).optimizer.warmup_steps, 1);
  EXPECT_EQ(with({"train.steps=1"}).optimizer.warmup_steps, 0);
  EXPECT_TRUE(with({"train.steps=1"}).optimizer.warmup_not_set);
  EXPECT_EQ(with({"train.stages=[{steps = 50}, {steps = 5000}]"}).optimizer.warmup_steps, 5);
}

TEST(Defaults, AWarmupThatSomebodySetIsTakenOrRefused) {
  const auto config = with({"train.steps=50", "optimizer.warmup_steps=50"});
  EXPECT_EQ(config.optimizer.warmup_steps, 50);
  EXPECT_FALSE(config.optimizer.warmup_not_set);
  EXPECT_NE(error_of(kBase, {"train.steps=50", "optimizer.warmup_steps=51"})
                .find("optimizer.warmup_steps (51) is beyond train.steps (50)"),
            std::string::npos);
}

TEST(Defaults, AnAutomaticTypeIsThatOfTheCpuAndStandsInTheDump) {
  ::setenv("ATHANOR_FAST_BF16", "1", 1);
  const RunConfig fast = with({"train.dtype=auto"});
  ::setenv("ATHANOR_FAST_BF16", "0", 1);
  const RunConfig slow = with({"train.dtype=auto"});
  EXPECT_EQ(with({"train.dtype=bfloat16"}).train.dtype, "bfloat16");
  EXPECT_FALSE(with({"train.dtype=bfloat16"}).train.dtype_was_auto);
  ::unsetenv("ATHANOR_FAST_BF16");
  EXPECT_EQ(fast.train.dtype, "bfloat16");
  EXPECT_EQ(slow.train.dtype, "float32");
  EXPECT_TRUE(fast.train.dtype_was_auto && slow.train.dtype_was_auto);
  EXPECT_NE(dump_run_config(slow, false).find("\ndtype = \"float32\"\n"), std::string::npos);
}

TEST(Defaults, EveryFamilyNeedsNothingElse) {
  for (const std::string& family : family_names()) {
    const std::string text = "[model]\nfamily = \"" + family + "\"\n";
    EXPECT_EQ(error_of(text), "") << family;
    const ModelConfig model = parse_run_config(text, "run.toml").model;
    EXPECT_EQ(model.num_experts, find_family(family)->sparse ? 16 : 0);
    EXPECT_EQ(model.num_experts_per_tok, find_family(family)->sparse ? 4 : 0);
    EXPECT_EQ(model.num_shared_experts, find_family(family)->has_shared_experts ? 1 : 0);
    if (!find_family(family)->sparse) continue;
    EXPECT_EQ(parse_run_config(text, "run.toml", {"model.num_experts=32"}).model.num_experts_per_tok, 4);
    EXPECT_EQ(parse_run_config(text, "run.toml", {"model.num_experts=2"}).model.num_experts_per_tok, 2);
    EXPECT_EQ(parse_run_config(text, "run.toml", {"model.num_experts_per_tok=20"}).model.num_experts, 20);
  }
  EXPECT_NE(error_of("[model]\nnum_experts = 0\n").find("family olmoe needs at least 1"), std::string::npos);
}

TEST(Defaults, TheTypeAndTheIntervalOfValidationAreAutomatic) {
  ::setenv("ATHANOR_FAST_BF16", "0", 1);
  const RunConfig slow = with({}), named = with({"train.dtype=bfloat16", "train.validation_interval=0"});
  ::unsetenv("ATHANOR_FAST_BF16");
  EXPECT_EQ(slow.train.dtype, "float32");
  EXPECT_TRUE(slow.train.dtype_was_auto && slow.train.validation_interval.is_auto);
  EXPECT_EQ(named.train.dtype, "bfloat16");
  EXPECT_FALSE(named.train.dtype_was_auto || named.train.validation_interval.is_auto);
  EXPECT_NE(dump_run_config(slow, false).find("\nvalidation_interval = \"auto\"\n"), std::string::npos);
}

TEST(Defaults, AMinLrThatNobodySetStaysBelowLr) {
  EXPECT_EQ(with({}).optimizer.min_lr, 4e-5);
  EXPECT_EQ(with({"optimizer.lr=5e-5"}).optimizer.min_lr, 4e-5);
  EXPECT_EQ(with({"optimizer.lr=1e-5"}).optimizer.min_lr, 1e-5 / 10);
  const auto stages = training_stages(with({"train.stages=[{steps = 5}, {steps = 5, lr = 1e-5}]"}));
  EXPECT_EQ(stages[0].config.optimizer.min_lr, 4e-5);
  EXPECT_EQ(stages[1].config.optimizer.min_lr, 1e-5 / 10);
  EXPECT_NE(error_of(kBase, {"optimizer.lr=1e-5", "optimizer.min_lr=2e-5"}).find("is above optimizer.lr"),
            std::string::npos);
}

TEST(Defaults, ATenthOfTheSmallestLrIs0) {
  EXPECT_EQ(with({"optimizer.lr=1.2e-38"}).optimizer.min_lr, 0);
  EXPECT_EQ(with({"train.stages=[{steps = 5, lr = 1.2e-38}]"}).train.stages[0].min_lr, 0);
}

TEST(Defaults, AMicroBatchThatNobodySetDividesTheBatch) {
  EXPECT_EQ(with({}).train.micro_batch_size, 4);
  EXPECT_EQ(with({"train.global_batch_size=2"}).train.micro_batch_size, 2);
  EXPECT_EQ(with({"train.global_batch_size=6"}).train.micro_batch_size, 3);
  EXPECT_EQ(with({"train.global_batch_size=7"}).train.micro_batch_size, 1);
  const auto stages = training_stages(with({"train.stages=[{steps = 5}, {steps = 5, global_batch_size = 9}]"}));
  EXPECT_EQ(stages[0].config.train.micro_batch_size, 4);
  EXPECT_EQ(stages[1].config.train.micro_batch_size, 3);
  EXPECT_NE(error_of(kBase, {"train.micro_batch_size=5"}).find("(5) must divide train.global_batch_size (16)"),
            std::string::npos);
}

TEST(Defaults, WhatIsPrintedIsWhatRuns) {
  for (const char* stages :
       {"train.steps=30", "train.stages=[{steps = 5}, {steps = 5, lr = 1e-6, global_batch_size = 9}]"}) {
    const auto text = dump_run_config(with({stages, "optimizer.lr=3e-5"}));
    EXPECT_EQ(dump_run_config(parse_run_config(text, "dumped")), text);
  }
}

}  // namespace
}  // namespace athanor::defaults_test
