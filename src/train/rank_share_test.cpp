#include "train/rank_share.h"

#include <gtest/gtest.h>

namespace athanor::rank_share_test {
namespace {

TEST(RankShare, TheLineSaysHowManyThreadsWhyAndHowTheyWait) {
  const std::string line = describe_threads({2, true, "OMP_NUM_THREADS"}, true);
  EXPECT_TRUE(line.starts_with("2 threads on each rank (OMP_NUM_THREADS); waiting threads ")) << line;
  EXPECT_EQ(line.find("fewer are tried"), std::string::npos) << line;
  EXPECT_EQ(describe_threads({1, false, "SLURM_CPUS_PER_TASK"}, false), "1 thread (SLURM_CPUS_PER_TASK)");
}

TEST(RankShare, FewerThreadsAreTriedOnlyWhereNobodyAskedForANumber) {
  EXPECT_TRUE(may_try_threads({4, false, ""}));
  EXPECT_FALSE(may_try_threads({4, true, ""}));
  EXPECT_FALSE(may_try_threads({1, false, ""}));
}

}  // namespace
}  // namespace athanor::rank_share_test
