#include "run/start_lines.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace athanor::start_lines_test {
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
  EXPECT_EQ(start_facts({"a"}, "", "CPU")[2], "Slurm job 17: 1 rank on 1 host: a (0)");
  ::unsetenv("SLURM_JOB_ID");
  ::setenv("PBS_JOBID", "7.server", 1);
  EXPECT_EQ(scheduler_job(), "PBS job 7.server");
  ::unsetenv("PBS_JOBID");
  EXPECT_EQ(scheduler_job(), "");
}

TEST(StartFacts, TheCommandIsTheOneThatWasTyped) {
  const auto facts = start_facts({"a"}, "Open MPI", cpu_of_host());
  ASSERT_EQ(facts.size(), 4u);
  EXPECT_TRUE(facts[0].ends_with(", Open MPI")) << facts[0];
  EXPECT_NE(facts[1].find("run_test"), std::string::npos) << facts[1];
  EXPECT_TRUE(facts[3].starts_with("CPU: " + cpu_of_host())) << facts[3];
}

TEST(StartFacts, HostsWithOtherCpusThanTheFirstAreNamedWithTheirRanks) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b", "c", "d"};
  EXPECT_EQ(describe_other_cpus({"X", "X", "X", "X", "X", "X"}, hosts), "");
  EXPECT_EQ(describe_other_cpus({"X", "X", "Y", "Y", "X", "Z; 4 processors"}, hosts),
            "3 ranks have other CPUs than the first rank, and each step waits for the slowest: b (2 to 3): Y; d (5): "
            "Z; 4 processors");
  EXPECT_EQ(describe_other_cpus({"X", "X", "X", "X", "Y", "X"}, hosts),
            "1 rank has other CPUs than the first rank, and each step waits for the slowest: c (4): Y");
}

}  // namespace
}  // namespace athanor::start_lines_test
