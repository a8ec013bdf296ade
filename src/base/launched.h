#pragma once
// The identity of this process in its job, as its launcher has set it in the environment; and the end of a job by a
// failure that is found before, or without, communication.

#include <chrono>
#include <optional>
#include <span>
#include <string>

namespace athanor {

/// The position of this process in its job; {0, 1, ""} without a launcher.
struct Launched {
  int rank = 0, size = 1;  ///< number of this process, from 0, and number of processes
  /// "Open MPI" or "MPICH": the MPI through which processes of the job can communicate. "torchrun": they meet at the
  /// address of the environment, and communicate without MPI.
  std::string launcher;
};

/// Reads the environment of the known launchers: mpirun of Open MPI and of MPICH, and Slurm's `srun --mpi=pmix` and
/// `--mpi=pmi2`. If there is none of these: torchrun and all that set its variables RANK, WORLD_SIZE, MASTER_ADDR and
/// MASTER_PORT.
Launched launched();

/// Where the processes of a job without MPI meet.
struct MasterAddress {
  std::string host;
  int port = 0;
  bool is_served = false;  ///< by the launcher; by rank 0 otherwise
  std::string attempt;     ///< differs between the attempts of a launcher that starts a failed job again
};
/// Returns nothing unless MASTER_ADDR and MASTER_PORT are set.
std::optional<MasterAddress> master_address();

/// A launcher that has started several copies of this program which cannot find one another: a step of Slurm without
/// PMI, or an unknown launcher. Each copy would take itself for the whole job.
struct UnseenLauncher {
  std::string name;      ///< "srun"
  std::string signs;     ///< "SLURM_STEP_NUM_TASKS=64 and SLURM_PROCID=3"
  std::string to_join;   ///< text that names the commands which start one job instead
  std::string variable;  ///< a variable to unset if this process is alone after all
};
/// Returns nothing if launched() knows the job, or if there is no sign of another copy: on a login node, in a batch
/// script, in a step of one task.
std::optional<UnseenLauncher> unseen_launcher();
/// Call this in commands that are one job on all ranks. @throws ConfigError with the remedy if there is an unseen
/// launcher. It is also thrown if the variables of torchrun and those of an MPI's launcher or of srun name different
/// ranks or sizes. The third reason is that torchrun's variables are incomplete, or are numbers that cannot be right
/// (launched.cpp).
void refuse_unseen_launcher();
/// Call this in commands that are a single process: several copies would write into one folder, or compete for one
/// core. `command` is its name in the message ("export").
/// @throws ConfigError with the remedy if any launcher has started several, or if torchrun's variables are wrong.
void refuse_copies(const std::string& command);

/// Returns the prefixes ("OMPI_", …) of the environment variables by which a launcher identifies its processes; one
/// that ends with "=" is a whole name. A process that is started as a job with one rank must not inherit them.
std::span<const char* const> launcher_prefixes();

/// Lets rank 0 report first if all ranks may have found the same failure: this call returns at once on rank 0 and makes
/// the other ranks wait; meanwhile rank 0 ends the job. A rank that alone has found a failure reports it after
/// `patience` and up to two seconds more.
void let_rank_0_speak(const Launched& me, std::chrono::milliseconds patience);

/// Ends this process and, as far as the launcher supports it, the whole job with this exit code and without a message
/// from the launcher. Only for processes that have not begun to communicate.
[[noreturn]] void end_job(const Launched& me, int exit_code);

}  // namespace athanor
