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

TEST_F(Allocations, AJobOfLsfWithoutLsbHostsHasThoseOfItsFileOrOfItsPairs) {
  const std::vector<Host> two{{"n1", 2}, {"n2", 1}};
  const auto file = write("slots", "n1\nn1\nn2\n").string();
  const auto of_file = find({{"LSB_JOBID", "9"}, {"LSB_DJOB_HOSTFILE", file}, {"LSB_MCPU_HOSTS", "n7 1"}});
  EXPECT_EQ(of_file.hosts, two);
  EXPECT_EQ(of_file.hosts_from, "LSB_DJOB_HOSTFILE");
  EXPECT_EQ(find({{"LSB_JOBID", "9"}, {"LSB_MCPU_HOSTS", "n1 2 n2 1"}}).hosts, two);
  EXPECT_SAYS(refused({{"LSB_JOBID", "9"}}), "LSB_HOSTS, LSB_DJOB_HOSTFILE and LSB_MCPU_HOSTS are not, so the hosts");
}

TEST_F(Allocations, AHeterogeneousJobOfSlurmHasTheHostsOfAllItsComponents) {
  std::map<std::string, std::string> variables{{"SLURM_JOB_ID", "7"},
                                               {"SLURM_JOB_NODELIST", "n[1-2]"},
                                               {"SLURM_HET_SIZE", "2"},
                                               {"SLURM_JOB_NODELIST_HET_GROUP_0", "n[1-2]"},
                                               {"SLURM_JOB_NODELIST_HET_GROUP_1", "g1"}};
  const auto found = find(variables);
  EXPECT_EQ(found.hosts, (std::vector<Host>{{"n1", 0}, {"n2", 0}, {"g1", 0}}));
  EXPECT_EQ(found.component("g1.site"), 1);
  EXPECT_EQ(found.hosts_from, "SLURM_JOB_NODELIST of 2 components");
  const auto file = write("hosts", "g1\nn2\n").string();
  EXPECT_EQ(find(variables, {.host_file = file}).hosts, (std::vector<Host>{{"n2", 0}, {"g1", 0}}));
  variables["SLURM_NTASKS_HET_GROUP_0"] = "4", variables["SLURM_TASKS_PER_NODE_HET_GROUP_0"] = "2(x2)";
  EXPECT_FALSE(find(variables).has_slots()) << "the other component was not asked for tasks";
  variables["SLURM_NTASKS_HET_GROUP_1"] = "8", variables["SLURM_TASKS_PER_NODE_HET_GROUP_1"] = "8";
  EXPECT_EQ(find(variables).hosts, (std::vector<Host>{{"n1", 2}, {"n2", 2}, {"g1", 8}}));
  variables.erase("SLURM_JOB_NODELIST_HET_GROUP_1");
  EXPECT_SAYS(refused(variables), "SLURM_JOB_NODELIST_HET_GROUP_1 is not, so the hosts");
}

TEST_F(Allocations, AJobOfASystemThatIsNotKnownIsNotTakenForThisMachineAlone) {
  const std::map<std::string, std::string> flux{
      {"FLUX_URI", "local:///run/flux"}, {"FLUX_JOB_ID", "f2"}, {"FLUX_JOB_NNODES", "2"}};
  EXPECT_SAYS(refused(flux), "FLUX_JOB_ID is f2: this is a job of Flux with 2 nodes");
  EXPECT_SAYS(refused({{"FLUX_URI", "local:///run/flux"}}), "an unknown number of nodes");
  EXPECT_SAYS(refused({{"PET_NNODES", "1:4"}}), "Kubeflow with 1:4 nodes");
  const auto file = write("pe", "n1 4 all.q <NULL>\nn2 4 all.q <NULL>\n").string();
  for (const char* sign : {"PE_HOSTFILE", "COBALT_NODEFILE", "OAR_NODEFILE", "OMPI_MCA_orte_default_hostfile"})
    EXPECT_SAYS(refused({{sign, file}}), "with 2 nodes, whose list of hosts is not read here");
  EXPECT_SAYS(refused({{"COBALT_NODEFILE", "/nowhere"}}), "an unknown number of nodes");
  // Those of one node, and of users who name what they want.
  EXPECT_EQ(find({{"FLUX_JOB_ID", "f2"}, {"FLUX_JOB_NNODES", "1"}}).hosts.size(), 1u);
  const auto slots = write("slots", "n1\nn1\n").string();
  EXPECT_EQ(find({{"OAR_NODEFILE", slots}}).hosts.size(), 1u);
  EXPECT_EQ(find(flux, {.scheduler = "local"}).hosts.size(), 1u);
  EXPECT_EQ(find(flux, {.host_file = write("hosts", "n1\nn2\n").string()}).hosts.size(), 2u);
  // A Flux that runs in a job of a scheduler that is known.
  auto both = slurm_;
  both["FLUX_URI"] = "local:///run/flux";
  EXPECT_EQ(find(both).scheduler, Scheduler::kSlurm);
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
