#include "base/launched.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "base/environment_number.h"
#include "base/error.h"
#include "base/first_word.h"

namespace athanor {
namespace {

// The numbers that torchrun, or a job script in its place, has set in the environment of a process.

// An empty variable is one that a script has set from another that does not exist.
bool is_set(const char* name) {
  const char* text = std::getenv(name);
  return text && *text;
}

std::string shown(const char* name) {
  const char* text = std::getenv(name);
  return text ? fmt::format("{} is \"{}\"", name, text) : fmt::format("{} is not set", name);
}

// Refuses if `rank` is no number below `size`, or `size` none from 1.
void require_pair(const char* rank_name, const char* size_name, const char* of_what) {
  const auto rank = number_in_environment(rank_name), size = number_in_environment(size_name);
  ATHANOR_CHECK(size && *size > 0,
                "{} and {}: {} has to be the number of processes {}, 1 or more, and {} a number from 0 to below it; if "
                "this process is to be alone, unset both",
                shown(rank_name), shown(size_name), size_name, of_what, rank_name);
  ATHANOR_CHECK(rank && *rank < *size,
                "{} and {}: {} has to be a number from 0 to below {}, in each process {} another one (under Slurm, "
                "SLURM_PROCID and SLURM_LOCALID are empty outside of srun); if this process is to be alone, unset both",
                shown(rank_name), shown(size_name), rank_name, size_name, of_what);
}

// Refuses numbers that cannot be those of a process of a job: RANK or WORLD_SIZE without the other, or a value that
// is no number that can be; and LOCAL_RANK and LOCAL_WORLD_SIZE that contradict each other or WORLD_SIZE.
// @throws ConfigError that names the variable, its value, and what to do.
void refuse_wrong_torchrun_numbers() {
  if (is_set("RANK") || is_set("WORLD_SIZE")) require_pair("RANK", "WORLD_SIZE", "of the job");
  if (!is_set("LOCAL_WORLD_SIZE")) {  // job scripts set LOCAL_RANK alone
    ATHANOR_CHECK(!is_set("LOCAL_RANK") || number_in_environment("LOCAL_RANK"),
                  "{}: it has to be the number of this process on its host, from 0; set it so, or unset it",
                  shown("LOCAL_RANK"));
    return;
  }
  require_pair("LOCAL_RANK", "LOCAL_WORLD_SIZE", "of this host");
  const auto local = number_in_environment("LOCAL_WORLD_SIZE"), all = number_in_environment("WORLD_SIZE");
  ATHANOR_CHECK(!all || *local <= *all,
                "{}, which is more than the {} processes of the whole job (WORLD_SIZE): set it to the number of "
                "processes on this host, or unset it",
                shown("LOCAL_WORLD_SIZE"), *all);
}

// Returns how RANK or WORLD_SIZE contradict the numbers which srun has given to this task; empty if they do not. Tasks
// that start several processes each (as torchrun does, started once on each node) are accepted. A process with such a
// contradiction has no rank: it must not speak for a job (launched()).
std::string contradiction_to_srun() {
  const auto task = number_in_environment("SLURM_PROCID"), tasks = number_in_environment("SLURM_STEP_NUM_TASKS");
  const auto rank = number_in_environment("RANK"), size = number_in_environment("WORLD_SIZE");
  if (!task || !tasks || *tasks < 2 || !rank || !size || *size < 2) return "";
  // torchrun numbers nodes as they come, and a job of several steps numbers its ranks across them.
  if (is_set("TORCHELASTIC_RUN_ID") || is_set("SLURM_HET_SIZE")) return "";
  // Where tasks start several processes each, ranks have other numbers than tasks. A rank above 0 with the number of
  // its task is not of such a job, unless LOCAL_WORLD_SIZE is set.
  const bool starts_several = *size > *tasks && (*rank != *task || *rank == 0 || is_set("LOCAL_WORLD_SIZE"));
  if (starts_several || (*size == *tasks && *rank == *task)) return "";
  return fmt::format(
      "RANK={} and WORLD_SIZE={} contradict srun, which started this process as SLURM_PROCID={} of "
      "SLURM_STEP_NUM_TASKS={}: set them in each task, as in srun bash -c 'RANK=$SLURM_PROCID "
      "WORLD_SIZE=$SLURM_STEP_NUM_TASKS exec athanor ...' (set in the batch script, they would be the same for all "
      "tasks), or start as many tasks as WORLD_SIZE",
      *rank, *size, *task, *tasks);
}

// @throws ConfigError if there is such a contradiction, one task after the other.
void refuse_other_numbers_than_sruns() {
  const std::string said = contradiction_to_srun();
  if (said.empty()) return;
  // One task after the other: srun --kill-on-bad-exit ends the others when the first has reported it.
  std::this_thread::sleep_for(std::min(*number_in_environment("SLURM_PROCID"), 10) * std::chrono::milliseconds(200));
  fail<ConfigError>("{}", said);
}

using namespace std::chrono_literals;

constexpr auto variable = number_in_environment;

// Reads the numbers that a launcher has set; false if there are none, or none that can be.
bool read_numbers(const char* rank_name, const char* size_name, const char* launcher, Launched& me) {
  const auto rank = variable(rank_name), size = variable(size_name);
  if (!rank || !size || *rank >= *size) return false;
  me = {*rank, *size, launcher};
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
  if (read_numbers("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI", me)) return me;
  if (std::getenv("PMIX_NAMESPACE") && (read_numbers("PMIX_RANK", "SLURM_STEP_NUM_TASKS", "Open MPI", me) ||
                                        read_numbers("PMIX_RANK", "SLURM_NTASKS", "Open MPI", me)))
    return me;
  if (read_numbers("PMI_RANK", "PMI_SIZE", "MPICH", me)) return me;
  Launched alone;
  const bool can_meet = master_address() && read_numbers("RANK", "WORLD_SIZE", "torchrun", me) && me.size > 1;
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
  if (!read_numbers("RANK", "WORLD_SIZE", "torchrun", other) || (other.rank == me.rank && other.size == me.size))
    return;
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
