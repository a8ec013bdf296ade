#include "base/launched.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"

namespace athanor::launched_test {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Sets variables while it lives, and removes those of any launcher that runs this test.
class Environment {
 public:
  explicit Environment(Variables set) : set_(std::move(set)) {
    std::vector<std::string> own;
    for (char** variable = environ; *variable; ++variable) {
      for (const char* prefix : launcher_prefixes()) {
        if (std::string(*variable).starts_with(prefix)) own.emplace_back(*variable);
      }
    }
    for (const auto& variable : own) ::unsetenv(variable.substr(0, variable.find('=')).c_str());
    for (const auto& [name, value] : set_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : set_) ::unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  Variables set_;
};

struct Case {
  std::string what;
  Variables variables;
  std::string unseen;  ///< the launcher's name; empty if there is none or it is known
  int size = 1;        ///< number of ranks in the job
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"a login node", {}, ""},
      {"a batch script of Slurm",
       {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "64"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}},
       ""},
      {"a step of one task", {{"SLURM_NTASKS", "64"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}, ""},
      {"srun without --mpi, the first task",
       {{"SLURM_NTASKS", "64"}, {"SLURM_STEP_NUM_TASKS", "64"}, {"SLURM_PROCID", "0"}},
       "srun"},
      {"srun without --mpi, another", {{"SLURM_STEP_NUM_TASKS", "64"}, {"SLURM_PROCID", "63"}}, "srun"},
      {"srun --mpi=pmix",
       {{"SLURM_STEP_NUM_TASKS", "64"}, {"SLURM_PROCID", "3"}, {"PMIX_NAMESPACE", "slurm.1.0"}, {"PMIX_RANK", "3"}},
       "",
       64},
      {"srun --mpi=pmi2",
       {{"SLURM_STEP_NUM_TASKS", "64"}, {"SLURM_PROCID", "3"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "64"}, {"PMI_FD", "9"}},
       "",
       64},
      {"mpirun of Open MPI in a batch script: a daemon on each of four nodes",
       {{"SLURM_STEP_NUM_TASKS", "4"},
        {"SLURM_PROCID", "1"},
        {"OMPI_COMM_WORLD_RANK", "2"},
        {"OMPI_COMM_WORLD_SIZE", "8"}},
       "",
       8},
      {"mpirun -n 1 of Open MPI on one of two daemons",
       {{"SLURM_STEP_NUM_TASKS", "2"},
        {"SLURM_PROCID", "0"},
        {"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "1"}},
       "",
       1},
      {"a batch script of PBS", {{"PBS_JOBID", "1.s"}, {"PBS_TASKNUM", "1"}, {"PBS_NODENUM", "0"}}, ""},
      {"pbsdsh", {{"PBS_JOBID", "1.s"}, {"PBS_TASKNUM", "3"}, {"PBS_VNODENUM", "1"}}, "pbsdsh"},
      {"mpirun over PBS", {{"PBS_TASKNUM", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, "", 4},
      {"PALS with PMI",
       {{"PALS_RANKID", "5"}, {"PALS_LOCAL_RANKID", "1"}, {"PMI_RANK", "5"}, {"PMI_SIZE", "8"}},
       "",
       8},
      {"PALS without", {{"PALS_RANKID", "5"}, {"PALS_NODEID", "1"}}, "mpiexec of Cray PALS"},
      {"PALS, alone", {{"PALS_RANKID", "0"}, {"PALS_NODEID", "0"}}, ""},
      {"aprun", {{"ALPS_APP_PE", "1"}}, "aprun"},
      {"aprun -n 1", {{"ALPS_APP_PE", "0"}}, ""},
      {"jsrun without MPI", {{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "6"}}, "jsrun"},
      {"jsrun with its MPI",
       {{"JSM_NAMESPACE_RANK", "1"},
        {"JSM_NAMESPACE_SIZE", "6"},
        {"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "6"}},
       "",
       6},
      {"flux run", {{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "", 2},
      {"flux run without PMI", {{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}}, "flux run"},
      {"MVAPICH", {{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "2"}}, "mpirun_rsh of MVAPICH"},
      {"torchrun, without a place to meet", {{"RANK", "0"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "0"}}, "torchrun"},
      {"torchrun, without a port", {{"RANK", "1"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node1"}}, "torchrun"},
      {"torchrun",
       {{"RANK", "0"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}, {"LOCAL_RANK", "0"}},
       "",
       8},
      {"torchrun of one process",
       {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}},
       ""},
      {"srun with torchrun's variables",
       {{"SLURM_STEP_NUM_TASKS", "64"},
        {"SLURM_PROCID", "3"},
        {"RANK", "3"},
        {"WORLD_SIZE", "64"},
        {"MASTER_ADDR", "node1"},
        {"MASTER_PORT", "29500"}},
       "",
       64},
      {"srun whose tasks are jobs of one process each",
       {{"SLURM_STEP_NUM_TASKS", "64"},
        {"SLURM_PROCID", "3"},
        {"RANK", "0"},
        {"WORLD_SIZE", "1"},
        {"MASTER_ADDR", "node1"},
        {"MASTER_PORT", "29500"}},
       "srun"},
      {"mpirun with torchrun's variables",
       {{"OMPI_COMM_WORLD_RANK", "2"},
        {"OMPI_COMM_WORLD_SIZE", "8"},
        {"RANK", "2"},
        {"WORLD_SIZE", "8"},
        {"MASTER_ADDR", "node1"},
        {"MASTER_PORT", "29500"}},
       "",
       8},
      {"Hydra", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "", 2},
      {"PMIx without a size", {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "x"}}, "a PMIx server"},
      {"PMI that makes no sense", {{"PMI_RANK", "6"}, {"PMI_SIZE", "6"}}, "a PMI server"},
      {"no numbers", {{"SLURM_STEP_NUM_TASKS", "many"}, {"SLURM_PROCID", "0"}}, ""},
  };
  return all;
}

TEST(UnseenLauncher, IsFoundByItsVariablesWhereNobodyServesPmi) {
  for (const Case& one : cases()) {
    const Environment environment(one.variables);
    const auto unseen = unseen_launcher();
    EXPECT_EQ(unseen ? unseen->name : "", one.unseen) << one.what;
    EXPECT_EQ(launched().size, one.size) << one.what;
  }
}

TEST(UnseenLauncher, RefusesJobsWithTheRemedyAndCopiesOfOneProcessWhoeverStartedThem) {
  for (const Case& one : cases()) {
    const Environment environment(one.variables);
    const bool several = !one.unseen.empty() || one.size > 1;
    if (one.unseen.empty()) {
      EXPECT_NO_THROW(refuse_unseen_launcher()) << one.what;
    } else {
      EXPECT_THROW(refuse_unseen_launcher(), ConfigError) << one.what;
    }
    if (several) {
      EXPECT_THROW(refuse_copies("export"), ConfigError) << one.what;
    } else {
      EXPECT_NO_THROW(refuse_copies("export")) << one.what;
    }
  }
}

TEST(UnseenLauncher, TheMessageHasTheNumbersAndSaysWhatToDo) {
  const Environment environment({{"SLURM_STEP_NUM_TASKS", "64"}, {"SLURM_PROCID", "3"}});
  try {
    refuse_unseen_launcher();
    FAIL();
  } catch (const ConfigError& error) {
    for (const char* part : {"srun", "SLURM_STEP_NUM_TASKS=64", "SLURM_PROCID=3", "--mpi=pmix", "unset SLURM_STEP"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(UnseenLauncher, OfTorchrunsVariablesThoseThatAreMissingAreNamed) {
  const Environment environment({{"RANK", "1"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node1"}});
  const std::string to_join = unseen_launcher()->to_join;
  EXPECT_NE(to_join.find("MASTER_PORT"), std::string::npos) << to_join;
  EXPECT_EQ(to_join.find("MASTER_ADDR"), std::string::npos) << to_join;
}

TEST(Launched, WithoutAnMpiTorchrunsVariablesNameThePlaceToMeet) {
  const Variables torchrun = {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  {
    const Environment environment(torchrun);
    EXPECT_EQ(launched().launcher, "torchrun");
    EXPECT_EQ(launched().rank, 3);
    EXPECT_EQ(master_address()->host, "node1");
    EXPECT_EQ(master_address()->port, 29500);
    EXPECT_FALSE(master_address()->is_served);
  }
  Variables with_agent = torchrun;
  with_agent.insert(with_agent.end(), {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}});
  const Environment environment(with_agent);
  EXPECT_TRUE(master_address()->is_served);
  EXPECT_EQ(master_address()->attempt, "2");
}

TEST(Launched, TwoLaunchersThatContradictEachOtherAreRefusedWithBothAndOfTwoThatAgreeItIsTheMpi) {
  for (const auto& [rank, size, agree] : {std::tuple{"2", "8", true}, {"1", "8", false}, {"2", "4", false}}) {
    const Environment environment({{"PMI_RANK", "2"},
                                   {"PMI_SIZE", "8"},
                                   {"RANK", rank},
                                   {"WORLD_SIZE", size},
                                   {"MASTER_ADDR", "node1"},
                                   {"MASTER_PORT", "29500"}});
    EXPECT_EQ(launched().launcher, "MPICH");
    if (agree) {
      EXPECT_NO_THROW(refuse_unseen_launcher());
      continue;
    }
    try {
      refuse_unseen_launcher();
      FAIL();
    } catch (const ConfigError& error) {
      for (const std::string& part : {std::string("MPICH"), std::string("rank 2 of 8"), fmt::format("RANK={}", rank),
                                      fmt::format("WORLD_SIZE={}", size)})
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

// Returns the refusal of a job with these variables, which must be that of a single process, too; empty: none.
std::string refusal_of(const Variables& variables) {
  const Environment environment(variables);
  const auto said = [](const auto& check) -> std::string {
    try {
      check();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const std::string of_job = said([] { refuse_unseen_launcher(); });
  if (!of_job.empty()) {
    EXPECT_EQ(said([] { refuse_copies("export"); }), of_job);
  }
  EXPECT_EQ(of_job.find('\n'), of_job.npos) << of_job;
  return of_job;
}

TEST(Launched, NumbersOfTorchrunThatCannotBeAreRefusedWithVariableAndValueByJobsAndByCommandsOfOneProcess) {
  const Variables meeting = {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  struct Wrong {
    Variables variables;
    std::string said;
  };
  const std::vector<Wrong> all = {
      {{{"RANK", "1"}, {"WORLD_SIZE", "1"}}, "RANK is \"1\" and WORLD_SIZE is \"1\": RANK has to be"},
      {{{"RANK", "5"}, {"WORLD_SIZE", "1"}}, "RANK is \"5\" and WORLD_SIZE is \"1\": RANK has to be"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is \"2\" and WORLD_SIZE is \"2\": RANK has to be"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "RANK is \"0\" and WORLD_SIZE is \"0\": WORLD_SIZE has to be"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "-2"}}, "RANK is \"0\" and WORLD_SIZE is \"-2\": WORLD_SIZE has to be"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "two"}}, "RANK is \"0\" and WORLD_SIZE is \"two\": WORLD_SIZE has to be"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2x"}}, "RANK is \"0\" and WORLD_SIZE is \"2x\": WORLD_SIZE has to be"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}, "WORLD_SIZE is \"99999999999\": WORLD_SIZE has to be"},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK is \"-1\" and WORLD_SIZE is \"2\": RANK has to be"},
      {{{"RANK", "x"}, {"WORLD_SIZE", "8"}}, "RANK is \"x\" and WORLD_SIZE is \"8\": RANK has to be"},
      {{{"RANK", ""}, {"WORLD_SIZE", "2"}}, "RANK is \"\" and WORLD_SIZE is \"2\": RANK has to be"},
      {{{"WORLD_SIZE", "2"}}, "RANK is not set and WORLD_SIZE is \"2\": RANK has to be"},
      {{{"RANK", "1"}}, "RANK is \"1\" and WORLD_SIZE is not set: WORLD_SIZE has to be"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
       "LOCAL_RANK is \"2\" and LOCAL_WORLD_SIZE is \"2\": LOCAL_RANK has to be"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "0"}},
       "LOCAL_RANK is \"0\" and LOCAL_WORLD_SIZE is \"0\": LOCAL_WORLD_SIZE has to be"},
      {{{"LOCAL_WORLD_SIZE", "4"}}, "LOCAL_RANK is not set and LOCAL_WORLD_SIZE is \"4\": LOCAL_RANK has to be"},
      {{{"LOCAL_RANK", "first"}}, "LOCAL_RANK is \"first\": it has to be"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "4"}},
       "LOCAL_WORLD_SIZE is \"4\", which is more than the 1 processes of the whole job"},
  };
  for (const Wrong& one : all) {
    for (const bool can_meet : {false, true}) {
      Variables variables = one.variables;
      if (can_meet) variables.insert(variables.end(), meeting.begin(), meeting.end());
      const std::string said = refusal_of(variables);
      EXPECT_NE(said.find(one.said), said.npos) << "for " << one.said << ": " << said;
      EXPECT_NE(said.find("unset "), said.npos) << said;
    }
  }
}

TEST(Launched, NumbersOfTorchrunThatCanBeAndThoseThatNobodyReadsAreNotRefused) {
  const Variables meeting = {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  std::vector<Variables> all = {
      {},
      meeting,
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
      {{"LOCAL_RANK", "3"}},
      {{"RANK", ""}, {"WORLD_SIZE", ""}},
      {{"RANK", "5"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
  };
  for (const Variables& variables : all) EXPECT_EQ(refusal_of(variables), "");
  const Environment job({{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "node1"},
                         {"MASTER_PORT", "29500"}});
  EXPECT_NO_THROW(refuse_unseen_launcher());
}

TEST(Launched, NumbersThatContradictThoseOfSrunAreRefusedWithBoth) {
  struct Task {
    const char *task, *tasks, *rank, *size;
    bool refused;
    Variables more = {};
  };
  const std::vector<Task> all = {
      {"3", "8", "3", "8", false},
      {"3", "8", "0", "8", true},    // set in the batch script
      {"3", "8", "2", "4", true},    // more tasks than ranks
      {"3", "8", "3", "16", true},   // WORLD_SIZE of the job, in a step with fewer tasks
      {"0", "8", "0", "16", false},  // may be one of two processes of the first task
      {"1", "2", "5", "8", false},   // a task that has started four
      {"1", "2", "1", "8", false, {{"LOCAL_WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}}},
      {"1", "2", "0", "2", false, {{"TORCHELASTIC_RUN_ID", "x"}}},  // torchrun numbers nodes as they come
      {"0", "1", "1", "2", false},                                  // a step for each rank
      {"1", "2", "1", "4", false, {{"SLURM_HET_SIZE", "2"}}},
  };
  for (const Task& one : all) {
    Variables variables = {{"SLURM_PROCID", one.task}, {"SLURM_STEP_NUM_TASKS", one.tasks},
                           {"RANK", one.rank},         {"WORLD_SIZE", one.size},
                           {"MASTER_ADDR", "node1"},   {"MASTER_PORT", "29500"}};
    variables.insert(variables.end(), one.more.begin(), one.more.end());
    const Environment environment(variables);
    const std::string expected = fmt::format(
        "RANK={} and WORLD_SIZE={} contradict srun, which started this process as SLURM_PROCID={} of "
        "SLURM_STEP_NUM_TASKS={}: set them in each task",
        one.rank, one.size, one.task, one.tasks);
    std::string said;
    try {
      refuse_unseen_launcher();
    } catch (const ConfigError& error) {
      said = error.what();
    }
    EXPECT_EQ(launched().size, one.refused ? 1 : std::stoi(one.size));
    EXPECT_EQ(said.substr(0, one.refused ? expected.size() : said.npos), one.refused ? expected : "");
  }
}

TEST(UnseenLauncher, AProcessWithoutLauncherPrefixesIsAloneWhateverStartedItsParent) {
  for (const Case& one : cases()) {
    Variables kept;
    for (const auto& [name, value] : one.variables) {
      const std::string variable = name + "=" + value;
      bool dropped = false;
      for (const char* prefix : launcher_prefixes()) dropped = dropped || variable.starts_with(prefix);
      if (!dropped) kept.emplace_back(name, value);
    }
    const Environment environment(kept);
    EXPECT_FALSE(unseen_launcher()) << one.what;
    EXPECT_EQ(launched().size, 1) << one.what;
  }
}

}  // namespace
}  // namespace athanor::launched_test
