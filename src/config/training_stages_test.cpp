#include "config/training_stages.h"

#include <gtest/gtest.h>

#include "config/dump.h"
#include "config/testing/error_of.h"

namespace athanor::training_stages_test {
namespace {

constexpr const char* kStages = R"(
[model]
num_experts = 4
num_experts_per_tok = 2
[optimizer]
lr = 1e-3
min_lr = 1e-4
warmup_steps = 10
[train]
[[train.stages]]
name = "pretrain"
steps = 100
[[train.stages.sources]]
path = "web"
weight = 3
[[train.stages.sources]]
path = "code"
weight = 1
max_epochs = 2.5
[[train.stages]]
steps = 20
seq_len = 1024
path = "long"
schedule = "linear"
lr = 5e-4
min_lr = 0
[data]
path = "books"
seq_len = 512
)";

TEST(TrainingStages, ARunWithoutStagesIsOneWithItsDataAsTheOnlySource) {
  const auto config = parse_run_config("[model]\nfamily = \"olmo\"\n[data]\npath = \"books\"\nseq_len = 512\n", "x");
  const auto stages = training_stages(config);
  ASSERT_EQ(stages.size(), 1U);
  EXPECT_EQ(stages[0].end(), config.train.steps);
  EXPECT_EQ(stages[0].config.data.seq_len, 512);
  ASSERT_EQ(stages[0].config.data.sources.size(), 1U);
  EXPECT_EQ(stages[0].config.data.sources[0].path, "books");
  EXPECT_EQ(stages[0].config.data.sources[0].max_epochs, 0) << "any number of epochs";
}

TEST(TrainingStages, WhatAStageDoesNotSetIsTheRuns) {
  const auto config = parse_run_config(kStages, "run.toml");
  EXPECT_EQ(config.train.steps, 120) << "the sum";
  const auto stages = training_stages(config);
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_EQ(stages[0].name, "pretrain");
  EXPECT_EQ(stages[0].config.optimizer.lr, 1e-3);
  EXPECT_EQ(stages[0].config.optimizer.warmup_steps, 10);
  ASSERT_EQ(stages[0].config.data.sources.size(), 2U);
  EXPECT_EQ(stages[0].config.data.sources[1].max_epochs, 2.5);
  EXPECT_EQ(stages[1].name, "stage 2");
  EXPECT_EQ(stages[1].begin, 100);
  EXPECT_EQ(stages[1].end(), 120);
  EXPECT_EQ(stages[1].config.data.seq_len, 1024);
  EXPECT_EQ(stages[1].config.optimizer.schedule, LrSchedule::kLinear);
  EXPECT_EQ(stages[1].config.optimizer.min_lr, 0);
  EXPECT_EQ(stages[1].config.optimizer.warmup_steps, 0)
      << "later training phases do not warm up unless they set a warm-up";
  EXPECT_EQ(stages[1].config.train.global_batch_size, config.train.global_batch_size);
}

TEST(TrainingStages, ListsOfTablesAreDumpedAndReadBack) {
  const auto config = parse_run_config(kStages, "run.toml");
  for (const bool with_help : {true, false}) {
    const std::string dumped = dump_run_config(config, with_help);
    EXPECT_EQ(dump_run_config(parse_run_config(dumped, "dumped"), with_help), dumped);
  }
}

TEST(TrainingStages, MistakesAreNamedByTheirPlaceInTheList) {
  const std::string error = error_of(
      "[[data.sources]]\npath = \"a\"\nweihgt = 1\nweight = 0.0\n[[data.sources]]\npath = \"b\"\nweight = inf\n");
  EXPECT_NE(error.find("run.toml:3:10: unknown key data.sources[0].weihgt (did you mean \"weight\"?)"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("data.sources[0].weight: expected a finite number above 0, got 0"), std::string::npos) << error;
  EXPECT_NE(error.find("data.sources[1].weight: expected a finite number above 0, got inf"), std::string::npos)
      << error;
  EXPECT_NE(error_of("[data]\nsources = 3\n").find("data.sources: expected a list of tables ([[data.sources]]), got 3"),
            std::string::npos);
  EXPECT_NE(error_of("[data]\nsources = [{path = \"a\", weight = 1}, 3]\n").find("expected a list of tables"),
            std::string::npos);
}

TEST(TrainingStages, ContradictionsBetweenStagesAndRunAreRefused) {
  const auto says = [](const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  const std::string head = "[model]\nfamily = \"olmo\"\n";
  says(error_of(head + "[[data.sources]]\npath = \"a\"\n"), "data.sources[0].weight is missing");
  says(error_of(head + "[[data.sources]]\nweight = 1\n"), "data.sources[0].path is missing");
  says(error_of(head + "[data]\npath = \"a\"\nsources = [{path = \"b\", weight = 1}]"), "are both set");
  says(error_of(head + "[data]\nsources = [{path = \"b\", weight = 1}, {path = \"b\", weight = 2}]"), "is there twice");
  says(error_of(kStages, {"train.steps=121"}),
       "train.steps (121) is beyond the sum of the training phases' steps (120)");
  EXPECT_EQ(error_of(kStages, {"train.steps=7"}), "");
  says(error_of(head + "[[train.stages]]\nname = \"a\"\nsteps = 5\nwarmup_steps = 6\n"),
       "a: optimizer.warmup_steps (6) is beyond its steps (5)");
  says(error_of(head + "[[train.stages]]\nname = \"a\"\n"), "train.stages[0].steps is missing");
}

}  // namespace
}  // namespace athanor::training_stages_test
