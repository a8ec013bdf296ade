#include "base/thread_share.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace athanor::thread_share_test {
namespace {

TEST(ThreadShare, AProcessAloneTakesEveryProcessorThatItMayRunOn) {
  const ThreadShare share = share_threads({.processors = 8, .of_host = 8});
  EXPECT_EQ(share.threads, 8);
  EXPECT_FALSE(share.asked_for);
  EXPECT_EQ(share.why, "this process may run on 8 processors");
}

TEST(ThreadShare, OmpNumThreadsIsTakenAndKept) {
  const ThreadShare share = share_threads({.processors = 8, .of_host = 8, .omp_num_threads = 3});
  EXPECT_EQ(share.threads, 3);
  EXPECT_TRUE(share.asked_for);
  EXPECT_EQ(share.why, "OMP_NUM_THREADS");
}

TEST(ThreadShare, OmpNumThreadsIsTakenBesideOtherRanksToo) {
  EXPECT_EQ(share_threads({.processors = 8, .of_host = 8, .ranks_of_host = 4, .omp_num_threads = 4}).threads, 4);
}

TEST(ThreadShare, OmpNumThreadsBeyondTheProcessorsIsCutAndSaid) {
  const ThreadShare share = share_threads({.processors = 2, .of_host = 2, .omp_num_threads = 16});
  EXPECT_EQ(share.threads, 2);
  EXPECT_EQ(share.why, "OMP_NUM_THREADS is 16, but this process may run on 2 processors");
}

TEST(ThreadShare, SlurmsProcessorsOfATaskAreTheMostThatARankTakes) {
  const ThreadShare share = share_threads({.processors = 8, .of_host = 8, .slurm_cpus_per_task = 3});
  EXPECT_EQ(share.threads, 3);
  EXPECT_EQ(share.why, "SLURM_CPUS_PER_TASK");
  EXPECT_EQ(share_threads({.processors = 2, .of_host = 2, .slurm_cpus_per_task = 3}).threads, 2);
  EXPECT_EQ(share_threads({.processors = 8, .of_host = 8, .ranks_of_host = 4, .slurm_cpus_per_task = 8}).threads, 2);
}

TEST(ThreadShare, RanksOfAHostShareItsProcessorsEvenly) {
  const ThreadShare share = share_threads({.processors = 8, .of_host = 8, .ranks_of_host = 3});
  EXPECT_EQ(share.threads, 2);
  EXPECT_EQ(share.why, "3 ranks share 8 processors of this host");
}

TEST(ThreadShare, RanksThatAreBoundToTheirOwnProcessorsKeepThose) {
  EXPECT_EQ(share_threads({.processors = 4, .of_host = 16, .ranks_of_host = 4}).threads, 4);
  EXPECT_EQ(share_threads({.processors = 1, .of_host = 16, .ranks_of_host = 4}).threads, 1);
}

TEST(ThreadShare, MoreRanksThanProcessorsStillHaveAThreadEach) {
  EXPECT_EQ(share_threads({.processors = 2, .of_host = 2, .ranks_of_host = 8}).threads, 1);
}

TEST(ThreadShare, TheEnvironmentIsReadAsOpenMpReadsIt) {
  EXPECT_EQ(parse_thread_count("4"), 4);
  EXPECT_EQ(parse_thread_count(" 4,2"), 4);
  for (const char* none : {"", "0", "-2", "two", "4x", "99999999999"}) EXPECT_FALSE(parse_thread_count(none)) << none;
  EXPECT_FALSE(parse_thread_count(nullptr));
}

TEST(ThreadShare, WhatIsFoundHereIsWhatTheEnvironmentSays) {
  ::setenv("OMP_NUM_THREADS", "5", 1);
  ::setenv("SLURM_CPUS_PER_TASK", "7", 1);
  const ThreadLimits limits = find_thread_limits();
  ::unsetenv("OMP_NUM_THREADS");
  ::unsetenv("SLURM_CPUS_PER_TASK");
  EXPECT_EQ(limits.omp_num_threads, 5);
  EXPECT_EQ(limits.slurm_cpus_per_task, 7);
  EXPECT_GE(limits.processors, 1);
}

}  // namespace
}  // namespace athanor::thread_share_test
