#include "launch/allocation.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::launch {
namespace allocation_test {

class Allocations : public FolderTest {
 protected:
  static Allocation find(std::map<std::string, std::string> variables, const AllocationRequest& request = {}) {
    Surroundings here;
    here.variables = std::move(variables);
    here.host = "n1";
    return find_allocation(request, here);
  }
  static std::string refused(std::map<std::string, std::string> variables, const AllocationRequest& request = {}) {
    return refusal<ConfigError>([&] { find(std::move(variables), request); });
  }
  const std::map<std::string, std::string> slurm_{
      {"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-4]"}, {"SLURM_TASKS_PER_NODE", "4,2,1(x2)"}};
};

TEST_F(Allocations, AJobOfSlurmHasSlotsIfItWasAskedForTasks) {
  auto variables = slurm_;
  EXPECT_FALSE(find(variables).has_slots());
  variables["SLURM_NTASKS"] = "8";
  const auto found = find(variables);
  EXPECT_EQ(found.scheduler, Scheduler::kSlurm);
  EXPECT_EQ(found.scheduler_from, "SLURM_JOB_ID is 7");
  EXPECT_EQ(found.hosts, (std::vector<Host>{{"n1", 4}, {"n2", 2}, {"n3", 1}, {"n4", 1}}));
}

TEST_F(Allocations, TasksOfOtherHostsThanTheListHasAreRefused) {
  auto variables = slurm_;
  variables["SLURM_NTASKS"] = "8";
  variables["SLURM_TASKS_PER_NODE"] = "4(x3)";
  EXPECT_SAYS(refused(variables), "SLURM_TASKS_PER_NODE (4(x3)) has 3 hosts, and SLURM_JOB_NODELIST has 4");
}

TEST_F(Allocations, AJobOfPbsHasTheLinesOfItsNodeFileAsSlots) {
  const auto file = write("nodes", "n1.site\nn1.site\nn2.site\nn2.site\n").string();
  const auto found = find({{"PBS_JOBID", "123.server"}, {"PBS_NODEFILE", file}});
  EXPECT_EQ(found.hosts, (std::vector<Host>{{"n1.site", 2}, {"n2.site", 2}}));
}

TEST_F(Allocations, OneLineForEachHostOfPbsIsNoWishForOneRank) {
  const auto file = write("nodes", "n1\nn2\n").string();
  EXPECT_FALSE(find({{"PBS_JOBID", "123.server"}, {"PBS_NODEFILE", file}}).has_slots());
}

TEST_F(Allocations, AJobOfLsfHasTheWordsOfLsbHosts) {
  const auto found = find({{"LSB_JOBID", "9"}, {"LSB_HOSTS", "n1 n1 n2 n2"}});
  EXPECT_EQ(found.hosts, (std::vector<Host>{{"n1", 2}, {"n2", 2}}));
}

TEST_F(Allocations, WithoutAJobThisMachineIsTheOnlyHostAndAToolOnThePathIsNamed) {
  const auto found = find({});
  EXPECT_EQ(found.scheduler, Scheduler::kLocal);
  EXPECT_EQ(found.hosts, (std::vector<Host>{{"n1", 0}}));
  const auto sbatch = write("bin/sbatch", "#!/bin/sh\n");
  std::filesystem::permissions(sbatch, std::filesystem::perms::owner_all);
  EXPECT_EQ(find({{"PATH", sbatch.parent_path().string()}}).scheduler_from,
            "sbatch is on the path, but this is no job of slurm, since SLURM_JOB_ID is not set");
}

TEST_F(Allocations, TwoSchedulersAreRefusedUnlessOneIsChosen) {
  auto variables = slurm_;
  variables["PBS_JOBID"] = "1.server";
  EXPECT_SAYS(refused(variables), "SLURM_JOB_ID and PBS_JOBID are both set");
  EXPECT_EQ(find(variables, {.scheduler = "slurm"}).scheduler, Scheduler::kSlurm);
  EXPECT_EQ(find(variables, {.scheduler = "local"}).hosts.size(), 1u);
  EXPECT_SAYS(refused({}, {.scheduler = "pbs"}), "--scheduler pbs: this is no job of it, since PBS_JOBID is not set");
}

TEST_F(Allocations, AJobWithoutItsListOfHostsIsRefused) {
  EXPECT_SAYS(refused({{"SLURM_JOB_ID", "7"}}), "SLURM_JOB_NODELIST is not");
  EXPECT_SAYS(refused({{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "/nowhere"}}), "PBS_NODEFILE is /nowhere, and there is no");
}

TEST_F(Allocations, AHostFileChoosesAmongTheHostsOfTheJob) {
  const auto file = write("hosts", "n2\nn4.site\n").string();
  EXPECT_EQ(find(slurm_, {.host_file = file}).hosts, (std::vector<Host>{{"n2", 0}, {"n4.site", 0}}));
  const auto other = write("others", "n2\nn9\n").string();
  EXPECT_SAYS(refused(slurm_, {.host_file = other}),
              "n9 is not among the hosts of slurm job 7, which has 4 hosts: n1, n2, n3, n4 (SLURM_JOB_NODELIST)");
  EXPECT_EQ(find({}, {.host_file = other}).hosts.size(), 2u);  // without a job every host is one
}

TEST_F(Allocations, AHostFileGivesSlotsToAllOrNone) {
  const auto file = write("hosts", "n2 slots=2\nn4\n").string();
  EXPECT_SAYS(refused({}, {.host_file = file}), "1 of 2 hosts have slots");
}

TEST_F(Allocations, NodesTakesTheFirstOfThem) {
  EXPECT_EQ(find(slurm_, {.nodes = 2}).hosts, (std::vector<Host>{{"n1", 0}, {"n2", 0}}));
  EXPECT_SAYS(refused(slurm_, {.nodes = 5}), "--nodes 5: there are only 4 hosts: n1, n2, n3, n4");
}

}  // namespace allocation_test
}  // namespace athanor::launch
