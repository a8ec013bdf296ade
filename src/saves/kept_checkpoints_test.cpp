// Tests what a start tells of the checkpoints to come.

#include "saves/kept_checkpoints.h"

#include <gtest/gtest.h>

#include "parallel/testing/small_layouts.h"

namespace athanor::kept_checkpoints_test {
namespace {

RunConfig config_of(int64_t interval, int64_t model_interval, int64_t steps) {
  RunConfig config = small_run({1, 1, 1, "none"}, 256, "bfloat16");
  config.checkpoint.interval = interval;
  config.checkpoint.model_interval = model_interval;
  config.train.steps = steps;
  return config;
}

KeptCheckpoints kept_of(const RunConfig& config, int64_t step = 0) {
  return count_kept_checkpoints(config, Layout(config, 1), step);
}

TEST(KeptCheckpoints, AreTheNewestFullOnesThoseThatStayAndAllModels) {
  RunConfig config = config_of(10, 25, 105);
  KeptCheckpoints kept = kept_of(config);
  EXPECT_EQ(kept.num_full, 2);
  EXPECT_EQ(kept.num_models, 5) << "those of the steps 25, 50, 75, 100 and 105";
  EXPECT_EQ(kept.full_bytes, 6 * kept.model_bytes) << "twelve bytes for each parameter, and two";
  EXPECT_EQ(kept.total_bytes(), 2 * kept.full_bytes + 5 * kept.model_bytes);
  EXPECT_EQ(kept_of(config, 100).num_full, 1) << "only the last step is left";
  config.checkpoint.keep_every = 20;
  EXPECT_EQ(kept_of(config).num_full, 2 + 4) << "105 and 100, and 20, 40, 60 and 80";
  EXPECT_EQ(kept_of(config, 105).total_bytes(), 0);
  EXPECT_EQ(kept_of(config_of(0, 0, 105)).total_bytes(), 0);
}

TEST(KeptCheckpoints, ADiskThatIsTooSmallIsToldWithPartsAndRemedies) {
  constexpr double kGiB = 1 << 30;
  const KeptCheckpoints kept{2, 5, 1.5 * kGiB, kGiB / 4};
  EXPECT_EQ(describe_short_disk(kept, 4.25 * kGiB, "runs/x"), "");
  const std::string told = describe_short_disk(kept, 4 * kGiB, "runs/x");
  for (const char* part :
       {"the disk of runs/x has 4.00GiB free", "take about 4.25GiB", "2 full of 1.50GiB", "5 model-only of 256.00MiB",
        "lower checkpoint.keep, or raise checkpoint.model_interval, or free some space"})
    EXPECT_NE(told.find(part), std::string::npos) << part << " in " << told;
}

TEST(KeptCheckpoints, ARunSavesNothingOnlyIfNoKindOfCheckpointIsWritten) {
  EXPECT_TRUE(saves_nothing(config_of(0, 0, 5).checkpoint));
  EXPECT_FALSE(saves_nothing(config_of(1, 0, 5).checkpoint));
  EXPECT_FALSE(saves_nothing(config_of(0, 1, 5).checkpoint));
  RunConfig config = config_of(0, 0, 5);
  config.checkpoint.interval.is_auto = true;
  EXPECT_FALSE(saves_nothing(config.checkpoint));
}

}  // namespace
}  // namespace athanor::kept_checkpoints_test
