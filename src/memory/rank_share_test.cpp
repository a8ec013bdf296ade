#include "memory/rank_share.h"

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

TEST(RankShare, RanksWithFewerThreadsThanMostAreNamed) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  EXPECT_EQ(describe_fewer_threads({2, 2, 2, 2}, hosts), "");
  EXPECT_EQ(describe_fewer_threads({4, 2, 2, 2}, hosts), "");  // nothing waits for a rank that has more
  const std::string fewer = describe_fewer_threads({2, 2, 2, 1}, hosts);
  EXPECT_TRUE(fewer.starts_with(
      "1 of 4 ranks have fewer threads than the others with 2, and each step waits for them: rank 3 (b) with 1."))
      << fewer;
  EXPECT_EQ(usual_threads({1, 2}), 2);
  EXPECT_EQ(usual_threads({1, 1, 2}), 1);
}

}  // namespace
}  // namespace athanor::rank_share_test
