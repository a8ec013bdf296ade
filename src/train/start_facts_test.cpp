#include "train/start_facts.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace athanor::start_facts_test {
namespace {

TEST(StartFacts, ConsecutiveRanksOfAHostStandTogether) {
  EXPECT_EQ(describe_hosts({"a"}), "1 rank on 1 host: a (0)");
  EXPECT_EQ(describe_hosts({"a", "a", "b", "b"}), "4 ranks on 2 hosts: a (0 to 1), b (2 to 3)");
  EXPECT_EQ(describe_hosts({"a", "b", "a"}), "3 ranks on 2 hosts: a (0), b (1), a (2)");
  const std::vector<std::string> many = {"a", "b", "c", "d", "e", "f"};
  EXPECT_EQ(describe_hosts(many), "6 ranks on 6 hosts: a (0), b (1), c (2), d (3), and 2 more");
}

TEST(StartFacts, TheJobOfTheSchedulerIsNamed) {
  ::unsetenv("PBS_JOBID");
  ::setenv("SLURM_JOB_ID", "17", 1);
  EXPECT_EQ(scheduler_job(), "Slurm job 17");
  EXPECT_EQ(start_facts({"a"}, "").back(), "Slurm job 17: 1 rank on 1 host: a (0)");
  ::unsetenv("SLURM_JOB_ID");
  ::setenv("PBS_JOBID", "7.server", 1);
  EXPECT_EQ(scheduler_job(), "PBS job 7.server");
  ::unsetenv("PBS_JOBID");
  EXPECT_EQ(scheduler_job(), "");
}

TEST(StartFacts, TheCommandIsTheOneThatWasTyped) {
  const auto facts = start_facts({"a"}, "Open MPI");
  ASSERT_EQ(facts.size(), 3u);
  EXPECT_NE(facts[0].find(", Open MPI, CPU: "), std::string::npos) << facts[0];
  EXPECT_NE(facts[1].find("train_test"), std::string::npos) << facts[1];
}

}  // namespace
}  // namespace athanor::start_facts_test
