#include "config/changes.h"

#include <gtest/gtest.h>

#include "config/dump.h"

namespace athanor::changes_test {
namespace {

using Lines = std::vector<std::string>;

TEST(ConfigChanges, EachValueThatChangedIsNamedWithBothAndNothingElse) {
  RunConfig before;
  before.optimizer.lr = 0.002;
  RunConfig now = before;
  EXPECT_EQ(describe_config_changes(dump_run_config(before), now), Lines{});
  now.optimizer.lr = 0.001;
  now.optimizer.betas = {0.9, 0.95};
  now.train.run_dir = "elsewhere";
  now.model.rope_scaling.factor = 4;
  EXPECT_EQ(describe_config_changes(dump_run_config(before), now),
            (Lines{"model.rope_scaling.factor was 1.0, is 4.0", "train.run_dir was \"runs/default\", is \"elsewhere\"",
                   "optimizer.lr was 0.002, is 0.001", "optimizer.betas was [0.9, 0.99], is [0.9, 0.95]"}));
}

TEST(ConfigChanges, SourcesAndStagesAreComparedOneByOne) {
  RunConfig before;
  before.data.sources = {{.path = "a", .weight = 1}, {.path = "b", .weight = 1}};
  RunConfig now = before;
  now.data.sources[1].weight = 3;
  EXPECT_EQ(describe_config_changes(dump_run_config(before), now), Lines{"data.sources[1].weight was 1.0, is 3.0"});
  now.data.sources.pop_back();
  EXPECT_EQ(describe_config_changes(dump_run_config(before), now).front(),
            "data.sources[1].max_epochs was 1.0, is absent");
}

TEST(ConfigChanges, AnOlderVersionsConfigurationHadTheDefaultsOfWhatItLacks) {
  RunConfig now;
  now.optimizer.lr = 1;
  EXPECT_EQ(describe_config_changes("[optimizer]\nlr = 1.0\nno_longer = 3\n", now), Lines{});
  EXPECT_EQ(describe_config_changes("[optimizer\n", now).size(), 1);
}

TEST(ConfigChanges, ADeepTextIsNoConfigurationAndALongOneTakesLinearTime) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "a.";
  deep += "b = 1\n";
  EXPECT_EQ(describe_config_changes(deep, RunConfig()).size(), 1);
  EXPECT_EQ(config_text_differences(deep, dump_run_config(RunConfig()))[0].a, "not TOML");
  std::string sources;
  for (int i = 0; i < 20'000; ++i) sources += "[[data.sources]]\npath = \"a\"\nweight = 1\n";
  EXPECT_EQ(describe_config_changes(sources, RunConfig()).size(), 40'000);  // many seconds with a search for each
}

TEST(ConfigChanges, TwoTextsAreComparedFieldByFieldAndCommentsDoNotCount) {
  RunConfig a;
  a.optimizer.lr = 0.125;
  RunConfig b = a;
  EXPECT_TRUE(config_text_differences(dump_run_config(a), dump_run_config(b, false)).empty());
  b.optimizer.lr = 0.25;
  const auto rows = config_text_differences(dump_run_config(a), dump_run_config(b, false));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name + ": " + rows[0].a + " and " + rows[0].b, "optimizer.lr: 0.125 and 0.25");
  EXPECT_TRUE(config_text_differences("[optimizer]\nlr = 0.125\n", dump_run_config(a)).empty())
      << "the others' defaults";
  ASSERT_EQ(config_text_differences("[[", dump_run_config(b)).size(), 1u);
  EXPECT_EQ(config_text_differences("[[", dump_run_config(b))[0].a, "not TOML");
}

}  // namespace
}  // namespace athanor::changes_test
