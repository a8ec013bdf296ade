#include "launch/mpi_flavour.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"
#include "launch/testing/recorded_machine.h"

namespace athanor::launch {
namespace mpi_flavour_test {

// What `mpirun --version` or `mpiexec --version` print. Open MPI 4 and MPICH: Debian 12. Open MPI 5 and Intel MPI: from
// public reports. PALS: as mache (E3SM, BSD) recognizes it.
constexpr const char* kOpenMpi4 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
constexpr const char* kOrte = "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
constexpr const char* kOpenMpi5 =
    "mpirun (Open MPI) 5.0.3\n\nReport bugs to https://www.open-mpi.org/community/help/\n";
constexpr const char* kMpich =
    "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date:                       "
    "     Thu Apr  7 12:34:45 CDT 2022\n    Process Manager:                         pmi\n";
constexpr const char* kIntel =
    "Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619 (id: c2e19c2f3e)\nCopyright 2003-2023, Intel "
    "Corporation.\n";
constexpr const char* kPals = "mpiexec version 1.8.0 revision 1a2b3c\n";

TEST(MpiFlavour, EachKindIsToldByItsVersion) {
  EXPECT_EQ(parse_mpi_version(kOpenMpi4), (MpiVersion{Flavour::kOpenMpi, "4.1.4"}));
  EXPECT_EQ(parse_mpi_version(kOrte), (MpiVersion{Flavour::kOpenMpi, "4.1.4"}));
  EXPECT_EQ(parse_mpi_version(kOpenMpi5), (MpiVersion{Flavour::kPrrte, "5.0.3"}));
  EXPECT_EQ(parse_mpi_version("mpirun (Open MPI) 10.0.0\n"), (MpiVersion{Flavour::kPrrte, "10.0.0"}));
  EXPECT_EQ(parse_mpi_version(kMpich), (MpiVersion{Flavour::kHydra, "4.0.2"}));
  EXPECT_EQ(parse_mpi_version(kIntel), (MpiVersion{Flavour::kIntelMpi, "2021.10"}));
  EXPECT_EQ(parse_mpi_version(kPals), (MpiVersion{Flavour::kPals, "1.8.0"}));
  for (const char* other : {"", "bash: mpirun: command not found\n", "mpirun 1.0\n", "version\n"})
    EXPECT_FALSE(parse_mpi_version(other)) << other;
}

TEST(MpiFlavour, SignalsThatEndALauncherAtOnceAreReplacedByOnesThatReachTheRanks) {
  EXPECT_EQ(passed_signal(Flavour::kSrun, SIGTERM), SIGINT);
  EXPECT_EQ(passed_signal(Flavour::kSrun, SIGUSR1), SIGUSR1);
  EXPECT_EQ(passed_signal(Flavour::kHydra, SIGHUP), SIGTERM);
  EXPECT_EQ(passed_signal(Flavour::kHydra, SIGUSR2), 0);
  EXPECT_EQ(passed_signal(Flavour::kOpenMpi, SIGUSR2), SIGUSR2);
}

class Launchers : public RecordedMachine {
 protected:
  void put_mpi(const std::string& name, const std::string& version) {
    put_program(here_, name, "cat <<'END'\n" + version + "END");
    here_.variables["PATH"] += ":/bin:/usr/bin-is-not-here";
  }
  Allocation of_slurm() const {
    Allocation found;
    found.scheduler = Scheduler::kSlurm;
    found.hosts = {{"n1", 0}, {"n2", 0}};
    return found;
  }
  Allocation of_pbs() const {
    Allocation found = of_slurm();
    found.scheduler = Scheduler::kPbs;
    return found;
  }
  Allocation of_machine() const {
    Allocation found;
    found.hosts = {{"n1", 0}};
    return found;
  }
  void SetUp() override {
    RecordedMachine::SetUp();
    here_.host = "n1";
  }
  Surroundings here_;
};

TEST_F(Launchers, SlurmStartsBySrunWithThePmiOfTheMpiOnThePath) {
  put_mpi("srun", "");
  put_mpi("mpirun", kOpenMpi4);
  EXPECT_EQ(find_launcher("auto", of_slurm(), here_).pmi, "pmix");
  put_mpi("mpirun", kMpich);
  EXPECT_EQ(find_launcher("auto", of_slurm(), here_).pmi, "pmi2");
  here_.variables["SLURM_MPI_TYPE"] = "pmix_v4";
  EXPECT_EQ(find_launcher("auto", of_slurm(), here_).pmi, "");
  EXPECT_EQ(find_launcher("auto", of_slurm(), here_).flavour, Flavour::kSrun);
}

TEST_F(Launchers, PbsPrefersTheMpiexecOfPals) {
  put_mpi("mpirun", kMpich);
  put_mpi("mpiexec", kPals);
  EXPECT_EQ(find_launcher("auto", of_pbs(), here_).flavour, Flavour::kPals);
  EXPECT_EQ(find_launcher("auto", of_machine(), here_).flavour, Flavour::kHydra);
  EXPECT_EQ(find_launcher("mpiexec", of_machine(), here_).from, "--launcher");
}

TEST_F(Launchers, WithoutMpiRanksOfOneMachineUseSocketsAndSeveralHostsAreRefused) {
  EXPECT_EQ(find_launcher("auto", of_machine(), here_).flavour, Flavour::kSockets);
  EXPECT_SAYS(refusal<ConfigError>([&] { find_launcher("auto", of_pbs(), here_); }),
              "there is no MPI: none of mpiexec, mpirun, mpiexec.hydra is on the path");
  EXPECT_SAYS(refusal<ConfigError>([&] { find_launcher("sockets", of_pbs(), here_); }),
              "starts ranks on this machine only");
}

TEST_F(Launchers, ALauncherThatIsNotThereOrOfNoKindIsRefused) {
  put_mpi("mpirun", "something else 1.0\n");
  EXPECT_SAYS(refusal<ConfigError>([&] { find_launcher("mpirun", of_machine(), here_); }), "names none of Open MPI");
  EXPECT_SAYS(refusal<ConfigError>([&] { find_launcher("jsrun", of_machine(), here_); }), "there is no such program");
  put_mpi("srun", "");
  EXPECT_SAYS(refusal<ConfigError>([&] { find_launcher("srun", of_machine(), here_); }), "this is no job of Slurm");
}

TEST_F(Launchers, AnMpirunThatHangsIsPassedOver) {
  here_.tool_limit = std::chrono::milliseconds(300);
  put_program(here_, "mpirun", "exec /bin/sleep 1000");
  put_mpi("mpiexec", kMpich);
  EXPECT_EQ(find_launcher("auto", of_machine(), here_).flavour, Flavour::kHydra);
}

}  // namespace mpi_flavour_test
}  // namespace athanor::launch
