#include "base/launched.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/environment_number.h"
#include "base/error.h"
#include "base/first_word.h"
#include "base/torchrun_variables.h"

namespace athanor {
namespace {

using namespace std::chrono_literals;

constexpr auto variable = number_in_environment;

bool found(const char* rank_name, const char* size_name, const char* launcher, Launched& found) {
  const auto rank = variable(rank_name), size = variable(size_name);
  if (!rank || !size || *rank >= *size) return false;
  found = {*rank, *size, launcher};
  return true;
}

// Open MPI's launchers serve PMIx, through which every process may ask for the end of its job. The two functions are
// looked up by name, which is the same in each version of the library. A launcher without PMIx learns of the failure
// from our exit code.
void abort_by_pmix(int exit_code) {
  void* library = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  using Init = int (*)(void*, void*, size_t);
  using Abort = int (*)(int, const char*, void*, size_t);
  const auto init = reinterpret_cast<Init>(::dlsym(library, "PMIx_Init"));
  const auto abort = reinterpret_cast<Abort>(::dlsym(library, "PMIx_Abort"));
  if (!init || !abort || init(nullptr, nullptr, 0) != 0) return;
  abort(exit_code, "", nullptr, 0);
}

// MPICH's own launcher reads lines of PMI 1 from each process.
void abort_by_pmi(int exit_code) {
  const auto socket = variable("PMI_FD");
  if (!socket || !std::getenv("HYDI_CONTROL_FD")) return;
  const std::string line = "cmd=abort exitcode=" + std::to_string(exit_code) + "\n";
  if (::write(*socket, line.data(), line.size()) < 0) return;
}

}  // namespace

Launched launched() {
  Launched me;
  if (found("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI", me)) return me;
  if (std::getenv("PMIX_NAMESPACE") && (found("PMIX_RANK", "SLURM_STEP_NUM_TASKS", "Open MPI", me) ||
                                        found("PMIX_RANK", "SLURM_NTASKS", "Open MPI", me)))
    return me;
  if (found("PMI_RANK", "PMI_SIZE", "MPICH", me)) return me;
  Launched alone;
  const bool can_meet = master_address() && found("RANK", "WORLD_SIZE", "torchrun", me) && me.size > 1;
  return can_meet && contradiction_to_srun().empty() ? me : alone;
}

std::optional<MasterAddress> master_address() {
  const char *host = std::getenv("MASTER_ADDR"), *attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const auto port = variable("MASTER_PORT");
  if (!host || !*host || !port || *port == 0 || *port > 65535) return {};
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  return MasterAddress{host, *port, agent && agent == std::string("True"), attempt ? attempt : "0"};
}

namespace {

constexpr const char* kHydra = "`mpiexec` of MPICH, or `mpirun` of Open MPI";

/// The variables by which a launcher numbers its processes. If it does not give their number, only a rank above 0 shows
/// that there are several; copies of rank 0 then end its job.
struct Signs {
  const char *launcher, *size, *rank;
  int first;            ///< number of the first
  const char* to_join;  ///< null: to_join_torchrun
};
constexpr Signs kSigns[] = {
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", 0,
     "`srun --mpi=pmix` for Open MPI, `srun --mpi=pmi2` for MPICH, `mpirun` in the batch script, or, without MPI, with "
     "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set in each task"},
    {"mpiexec of Cray PALS", "PALS_SIZE", "PALS_RANKID", 0, "`mpiexec` with PMI (not --pmi=none)"},
    {"aprun", nullptr, "ALPS_APP_PE", 0, "`mpiexec` or `mpirun`"},
    {"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", 0, "`jsrun` with its MPI (not --smpiargs=none), or `mpirun`"},
    {"flux run", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", 0, "`flux run -o mpi=none -o pmi=simple` for MPICH, or `mpirun`"},
    {"mpirun_rsh of MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", 0, kHydra},
    {"torchrun", "WORLD_SIZE", "RANK", 0, nullptr},
    {"a PMIx server", nullptr, "PMIX_RANK", 0, "`mpirun` of Open MPI"},
    {"a PMI server", nullptr, "PMI_RANK", 0, "`mpiexec` of MPICH"},
    {"pbsdsh", nullptr, "PBS_TASKNUM", 1, "`mpiexec` or `mpirun` in the batch script"},
};

// What is missing from the variables of torchrun.
std::string to_join_torchrun() {
  std::string missing;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) missing += fmt::format("{}{}", missing.empty() ? "" : " and ", name);
  }
  if (missing.empty()) return "RANK below WORLD_SIZE and the number of a port in MASTER_PORT, or with `mpirun`";
  return missing + " set, too (`torchrun` sets all four), or with `mpirun`";
}

}  // namespace

std::optional<UnseenLauncher> unseen_launcher() {
  if (!launched().launcher.empty()) return {};
  for (const Signs& signs : kSigns) {
    const auto rank = variable(signs.rank), size = signs.size ? variable(signs.size) : std::nullopt;
    if (!rank) continue;
    if (size ? *size < 2 : *rank <= signs.first) continue;
    if (!size && signs.launcher == std::string("torchrun")) continue;  // any program may use this name
    std::string said = fmt::format("{}={}", signs.rank, *rank);
    if (size) said = fmt::format("{}={} and {}", signs.size, *size, said);
    return UnseenLauncher{signs.launcher, std::move(said), signs.to_join ? signs.to_join : to_join_torchrun(),
                          size ? signs.size : signs.rank};
  }
  return {};
}

namespace {

// A process that two launchers have numbered belongs to one job only if they agree.
void refuse_contradicting_launchers() {
  const Launched me = launched();
  if (me.launcher.empty() || me.launcher == "torchrun" || !master_address()) return;
  Launched other;
  if (!found("RANK", "WORLD_SIZE", "torchrun", other) || (other.rank == me.rank && other.size == me.size)) return;
  fail<ConfigError>(
      "two launchers contradict each other: the one of {} started this process as rank {} of {}, but RANK={} and "
      "WORLD_SIZE={} (torchrun's variables) are set. Unset RANK to use {}; to use torchrun, start it without MPI's "
      "variables (under Slurm with `srun --mpi=none`)",
      me.launcher, me.rank, me.size, other.rank, other.size, me.launcher);
}

// Where an MPI's launcher has numbered the process, torchrun's variables are read by the check above alone.
void refuse_wrong_numbers() {
  if (const std::string launcher = launched().launcher; !launcher.empty() && launcher != "torchrun") return;
  refuse_wrong_torchrun_numbers();
  refuse_other_numbers_than_sruns();
}

}  // namespace

void refuse_unseen_launcher() {
  refuse_contradicting_launchers();
  refuse_wrong_numbers();
  if (const auto unseen = unseen_launcher()) {
    fail<ConfigError>(
        "{} started several copies of this program ({}) without a way to find one another; each would be a separate "
        "job. Start one with {}; if this process is to be alone, unset {}",
        unseen->name, unseen->signs, unseen->to_join, unseen->variable);
  }
}

void refuse_copies(const std::string& command) {
  refuse_wrong_numbers();
  if (const Launched me = launched(); me.size > 1) {
    fail<ConfigError>("athanor {} is one process, but the launcher of {} started {} of it; start it without a launcher",
                      command, me.launcher, me.size);
  }
  if (const auto unseen = unseen_launcher()) {
    fail<ConfigError>(
        "athanor {} is one process, but {} started several of it ({}); start it without, or as one task; if this "
        "process is to be alone, unset {}",
        command, unseen->name, unseen->signs, unseen->variable);
  }
}

std::span<const char* const> launcher_prefixes() {
  static constexpr const char* kPrefixes[] = {
      "OMPI_",        "PMIX_",        "PMI_",         "HYDI_",        "MPI_LOCAL",    "MPIR_CVAR_CH3_INTERFACE",
      "SLURM_STEP_",  "PALS_",        "ALPS_APP_PE",  "MV2_COMM_",    "SLURM_PROCID", "JSM_NAMESPACE_",
      "FLUX_TASK_",   "RANK=",        "WORLD_SIZE=",  "PBS_TASKNUM=", "LOCAL_RANK=",  "LOCAL_WORLD_SIZE=",
      "MASTER_ADDR=", "MASTER_PORT=", "TORCHELASTIC_"};
  return kPrefixes;
}

namespace {

// torchrun's agent ends the other ranks as soon as one has ended, and an MPI's launcher can be told to.
bool speaks_without_launcher(const Launched& me) { return me.launcher == "torchrun" && !master_address()->is_served; }

}  // namespace

void let_rank_0_speak(const Launched& me, std::chrono::milliseconds patience) {
  // Ranks end the job one after another, so that if several report the same failure, one is heard: a launcher needs
  // about a tenth of a second to end the ranks on its own host.
  if (me.rank == 0) return;
  const auto wait = patience + std::min(me.rank, 10) * 200ms;
  if (!speaks_without_launcher(me)) return std::this_thread::sleep_for(wait);
  if (const auto exit_code = hear_first_word(*master_address(), wait)) {
    std::fflush(nullptr);
    std::_Exit(*exit_code);
  }
}

void end_job(const Launched& me, int exit_code) {
  std::fflush(nullptr);
  if (speaks_without_launcher(me)) {
    if (me.rank == 0) give_first_word(*master_address(), me.size - 1, exit_code, 4s);
  } else if (me.size > 1 && me.launcher != "torchrun") {
    // When a launcher is told to abort, it may drop output that it has not passed on, and on a busy machine it reads
    // late.
    std::this_thread::sleep_for(300ms);
    if (me.launcher == "Open MPI") abort_by_pmix(exit_code);
    if (me.launcher == "MPICH") abort_by_pmi(exit_code);
    // The launcher's signal is on its way. If this process left first, the launcher would report that a process failed.
    std::this_thread::sleep_for(10s);
  }
  std::_Exit(exit_code);
}

}  // namespace athanor
