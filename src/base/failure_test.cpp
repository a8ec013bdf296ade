#include "base/failure.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace athanor::failure_test {
namespace {

Failure of(const auto& error) { return describe_failure(std::make_exception_ptr(error)); }

// Sets variables while it lives, and removes those of a launcher that runs this test.
class Environment {
 public:
  explicit Environment(std::vector<std::pair<std::string, std::string>> set) {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK",
                             "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_PROCID"})
      ::unsetenv(name);
    for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
    names_ = std::move(set);
  }
  ~Environment() {
    for (const auto& [name, value] : names_) ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::pair<std::string, std::string>> names_;
};

TEST(Failure, TheLineNamesRankHostAndStepOfAJob) {
  const Launched me{3, 8, "Open MPI"};
  EXPECT_EQ(failure_line(of(DataError("a.npy is short")), me, "node7", 12), "rank 3 (node7): step 12: a.npy is short");
}

TEST(Failure, ALoneProcessHasNoRankAndAMessageWithItsStepIsNotGivenItTwice) {
  EXPECT_EQ(failure_line(of(Error("no")), {}, "node7", 0), "no");
  EXPECT_EQ(failure_line(of(Error("step 4: the loss is nan")), {}, "node7", 4), "step 4: the loss is nan");
  EXPECT_EQ(failure_line(of(Error("step 40: no")), {}, "node7", 4), "step 4: step 40: no");
}

TEST(Failure, EachKindHasItsExitCode) {
  EXPECT_EQ(of(ConfigError("")).exit_code, exit_code::kInput);
  EXPECT_EQ(of(DataError("")).exit_code, exit_code::kInput);
  EXPECT_EQ(of(CommError("")).exit_code, exit_code::kCollective);
  EXPECT_EQ(of(IoError("", EIO)).exit_code, exit_code::kIo);
  EXPECT_EQ(of(IoError("", ENOENT)).exit_code, exit_code::kInput);
  EXPECT_EQ(of(std::system_error(ENOSPC, std::generic_category())).exit_code, exit_code::kInput);
  EXPECT_EQ(of(std::system_error(EAGAIN, std::generic_category())).exit_code, exit_code::kUnforeseen);
  EXPECT_EQ(of(NumbersError("", "")).exit_code, exit_code::kNumbersEverywhere);
  EXPECT_EQ(of(NumbersError("", "model.norm.weight")).tensor, "model.norm.weight");
  EXPECT_EQ(of(std::runtime_error("x")).message, "x");
  EXPECT_EQ(of(std::runtime_error("x")).exit_code, exit_code::kUnforeseen);
  EXPECT_EQ(describe_failure(std::make_exception_ptr(7)).exit_code, exit_code::kUnforeseen);
}

TEST(Failure, FilesAndDataThatFailInARunAreIoWhateverTheSystemsReason) {
  const auto in_run = [](const auto& error) {
    return describe_failure(std::make_exception_ptr(error), true).exit_code;
  };
  EXPECT_EQ(in_run(IoError("", ENOENT)), exit_code::kIo);
  EXPECT_EQ(in_run(IoError("", ENOSPC)), exit_code::kIo);
  EXPECT_EQ(in_run(DataError("")), exit_code::kIo);
  EXPECT_EQ(in_run(CheckpointError("")), exit_code::kIo);
  EXPECT_EQ(in_run(Error("of another rank", exit_code::kInput)), exit_code::kIo);
  EXPECT_EQ(in_run(ConfigError("")), exit_code::kInput);
  EXPECT_EQ(in_run(Error("")), exit_code::kUnforeseen);
  const std::filesystem::filesystem_error own("cannot remove", "x", std::error_code(EACCES, std::generic_category()));
  EXPECT_EQ(in_run(own), exit_code::kIo);
  EXPECT_EQ(of(own).exit_code, exit_code::kInput);
}

TEST(Failure, OutOfMemoryIsRecognisedWhoeverSaysIt) {
  EXPECT_EQ(of(std::bad_alloc()).exit_code, exit_code::kMemory);
  EXPECT_NE(of(std::bad_alloc()).message.find("micro_batch_size"), std::string::npos);
  const auto host = of(std::runtime_error(
      "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
      "8 bytes.\nframe #0: somewhere"));
  EXPECT_EQ(host.exit_code, exit_code::kMemory);
  EXPECT_NE(host.message.find("you tried to allocate 8 bytes"), std::string::npos);
  EXPECT_EQ(host.message.find("frame"), std::string::npos);
  EXPECT_EQ(of(std::runtime_error("CUDA: allocate: no memory for 8 bytes")).exit_code, exit_code::kMemory);
  EXPECT_EQ(of(std::runtime_error("CUDA out of memory. Tried to allocate 2 GiB")).exit_code, exit_code::kMemory);
}

TEST(Launched, EachLaunchersVariablesAreRead) {
  {
    const Environment none({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}});  // a batch script's own process
    EXPECT_EQ(launched().size, 1);
  }
  {
    const Environment mpirun({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"PMIX_RANK", "3"}});
    EXPECT_EQ(launched().rank, 3);
    EXPECT_EQ(launched().size, 8);
    EXPECT_EQ(launched().launcher, "Open MPI");
  }
  {
    const Environment srun({{"PMIX_NAMESPACE", "slurm.1.0"}, {"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}});
    EXPECT_EQ(launched().rank, 1);
    EXPECT_EQ(launched().size, 2);
    EXPECT_EQ(launched().launcher, "Open MPI");
  }
  {
    const Environment hydra({{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}});
    EXPECT_EQ(launched().rank, 5);
    EXPECT_EQ(launched().launcher, "MPICH");
  }
}

TEST(Launched, AnEnvironmentThatMakesNoSenseIsNoJob) {
  const Environment wrong({{"PMI_RANK", "6"}, {"PMI_SIZE", "6"}});
  EXPECT_EQ(launched().size, 1);
  EXPECT_EQ(launched().launcher, "");
}

}  // namespace
}  // namespace athanor::failure_test
