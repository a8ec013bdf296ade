#include "launch/mpi_flavour.h"

#include <algorithm>
#include <csignal>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "launch/process.h"

namespace athanor::launch {
namespace {

// The word after `before`, up to a blank; empty if `before` is not there.
std::string word_after(std::string_view text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == text.npos) return "";
  std::string_view rest = text.substr(at + before.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return std::string(rest.substr(0, rest.find_first_of(" \n\r")));
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// Asks a program for its version; nothing if it is of no known kind.
std::optional<Launcher> ask_launcher(const std::string& name, const Surroundings& here) {
  const auto path = here.find_program(name);
  if (!path) return std::nullopt;
  if (path->filename() == "srun") return Launcher{Flavour::kSrun, path->string(), "", "", "", ""};
  const auto said = ask_tool({path->string(), "--version"}, here);
  const auto version = said ? parse_mpi_version(*said) : std::nullopt;
  if (!version) return std::nullopt;
  return Launcher{version->flavour, path->string(), version->version, "", "", ""};
}

// Which interface a program of this machine's MPI needs of srun (`srun --mpi=list` has those of a cluster).
void choose_pmi(Launcher& srun, const Surroundings& here) {
  if (here.variable("SLURM_MPI_TYPE")) {
    srun.pmi_from = "SLURM_MPI_TYPE is set";
    return;
  }
  if (here.variable("CRAY_MPICH_DIR") || here.variable("CRAY_MPICH_VERSION")) {
    srun.pmi_from = "Cray MPICH takes what is the default of the cluster";
    return;
  }
  for (const char* name : {"mpirun", "mpiexec"}) {
    const auto mpi = ask_launcher(name, here);
    if (!mpi || mpi->flavour == Flavour::kPals) continue;
    srun.pmi = mpi->flavour == Flavour::kOpenMpi || mpi->flavour == Flavour::kPrrte ? "pmix" : "pmi2";
    srun.pmi_from = fmt::format("{} is that of {}", mpi->path, flavour_name(mpi->flavour));
    return;
  }
  srun.pmi_from = "there is no mpirun that would show the MPI: the default of the cluster";
}

std::vector<std::string> candidates_of(Scheduler scheduler) {
  if (scheduler == Scheduler::kSlurm) return {"srun", "mpirun", "mpiexec"};
  if (scheduler == Scheduler::kPbs) return {"mpiexec", "mpirun", "mpiexec.hydra"};  // PALS has an mpiexec
  return {"mpirun", "mpiexec", "mpiexec.hydra"};
}

Launcher wanted_launcher(const std::string& wanted, const Allocation& allocation, const Surroundings& here) {
  if (wanted == "sockets") {
    ATHANOR_CHECK(allocation.is_this_machine(here),
                  "--launcher sockets starts ranks on this machine only, and there are {} ({}); take an MPI's launcher",
                  shown_hosts(allocation.hosts), allocation.hosts_from);
    return {Flavour::kSockets, "", "", "--launcher sockets", "", ""};
  }
  ATHANOR_CHECK(here.find_program(wanted),
                "--launcher {}: there is no such program on the path; expected auto, sockets, or a program such as "
                "mpirun, mpiexec or srun",
                wanted);
  auto named = ask_launcher(wanted, here);
  ATHANOR_CHECK(named,
                "--launcher {}: its --version names none of Open MPI, MPICH, Intel MPI and PALS (or fails, or takes "
                "longer than {} s); expected auto, sockets, or a program such as mpirun, mpiexec or srun",
                wanted, here.tool_limit.count() / 1000);
  ATHANOR_CHECK(named->flavour != Flavour::kSrun || allocation.scheduler == Scheduler::kSlurm,
                "--launcher {}: this is no job of Slurm (SLURM_JOB_ID); start it in one (salloc or sbatch), or take "
                "mpirun",
                wanted);
  named->from = "--launcher";
  return *named;
}

}  // namespace

const char* flavour_name(Flavour flavour) {
  switch (flavour) {
    case Flavour::kOpenMpi:
    case Flavour::kPrrte: return "Open MPI";
    case Flavour::kHydra: return "MPICH";
    case Flavour::kIntelMpi: return "Intel MPI";
    case Flavour::kPals: return "PALS";
    case Flavour::kSrun: return "Slurm";
    case Flavour::kSockets: return "sockets";
  }
  return "";
}

std::optional<MpiVersion> parse_mpi_version(std::string_view text) {
  if (contains(text, "HYDRA build details")) return MpiVersion{Flavour::kHydra, word_after(text, "Version:")};
  if (contains(text, "Intel(R) MPI Library")) return MpiVersion{Flavour::kIntelMpi, word_after(text, "Version ")};
  for (const char* name : {"(Open MPI) ", "(OpenRTE) "}) {
    if (!contains(text, name)) continue;
    const std::string version = word_after(text, name);
    const bool is_new = version.find('.') > 1 || version >= "5";
    return MpiVersion{is_new ? Flavour::kPrrte : Flavour::kOpenMpi, version};
  }
  if (contains(text, "(PRRTE)") || contains(text, "PRTE")) return MpiVersion{Flavour::kPrrte, ""};
  if (text.starts_with("mpiexec version ")) return MpiVersion{Flavour::kPals, word_after(text, "mpiexec version ")};
  return std::nullopt;
}

Launcher find_launcher(const std::string& wanted, const Allocation& allocation, const Surroundings& here) {
  std::optional<Launcher> found;
  if (wanted != "auto") found = wanted_launcher(wanted, allocation, here);
  const auto candidates = candidates_of(allocation.scheduler);
  for (size_t i = 0; i < candidates.size() && !found; ++i) {
    found = ask_launcher(candidates[i], here);
    if (found) found->from = fmt::format("the first of {} on the path", join(candidates));
  }
  if (!found) {
    ATHANOR_CHECK(allocation.is_this_machine(here),
                  "there is no MPI: none of {} is on the path (or none has a known --version), and ranks on {} ({}) "
                  "need one; load a module of an MPI",
                  join(candidates), shown_hosts(allocation.hosts), allocation.hosts_from);
    return {Flavour::kSockets, "", "", fmt::format("none of {} is on the path", join(candidates)), "", ""};
  }
  ATHANOR_CHECK(!allocation.is_heterogeneous() || found->flavour == Flavour::kSrun,
                "{} reaches the first component of a heterogeneous job of Slurm only, and this one has {}; take "
                "--launcher srun",
                found->path, allocation.hosts_from);
  if (found->flavour == Flavour::kSrun) choose_pmi(*found, here);
  return *found;
}

int passed_signal(Flavour flavour, int number) {
  if (flavour == Flavour::kSrun && (number == SIGTERM || number == SIGHUP)) return SIGINT;
  if (flavour == Flavour::kHydra || flavour == Flavour::kIntelMpi) {
    if (number == SIGHUP) return SIGTERM;
    if (number == SIGUSR2) return 0;
  }
  return number;
}

}  // namespace athanor::launch
