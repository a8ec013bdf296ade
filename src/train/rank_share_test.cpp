#include "train/rank_share.h"

#include <gtest/gtest.h>

#include "ops/tiles.h"

namespace athanor {
namespace {

RunConfig in_type(const std::string& dtype) {
  RunConfig config;
  config.train.dtype = dtype;
  return config;
}

TEST(RankShare, TheLineSaysHowManyThreadsWhyAndHowTheyWait) {
  const std::string line = describe_threads({2, true, "OMP_NUM_THREADS"}, in_type("float32"), true);
  EXPECT_TRUE(line.starts_with("2 threads on each rank (OMP_NUM_THREADS); waiting threads ")) << line;
  EXPECT_EQ(line.find("fewer are tried"), std::string::npos) << line;
  EXPECT_EQ(describe_threads({1, false, "SLURM_CPUS_PER_TASK"}, in_type("float32"), false),
            "1 thread (SLURM_CPUS_PER_TASK)");
}

TEST(RankShare, FewerThreadsAreTriedOnlyWhereNobodyAskedAndNoBitDependsOnThem) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    const RunConfig config = in_type(dtype);
    const bool tiles =
        ops::multiplies_on_tiles(at::empty({1}, config.train.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat));
    EXPECT_EQ(may_try_threads({4, false, ""}, config), tiles) << dtype;
    EXPECT_FALSE(may_try_threads({4, true, ""}, config)) << dtype;
    EXPECT_FALSE(may_try_threads({1, false, ""}, config)) << dtype;
  }
}

}  // namespace
}  // namespace athanor
