#pragma once
// Which process of which job this is, as its launcher has said in the environment; and how a job ends by a failure that
// is found before, or without, communication.

#include <chrono>
#include <optional>
#include <span>
#include <string>

namespace athanor {

/// {0, 1, ""} where no launcher was.
struct Launched {
  int rank = 0, size = 1;
  std::string launcher;  ///< "Open MPI" or "MPICH": whose library can join the job
};

/// Knows mpirun of Open MPI and of MPICH, and Slurm's `srun --mpi=pmix` and `--mpi=pmi2`.
Launched launched();

/// Something has started several copies of this program that cannot find one another: a step of Slurm without PMI, a
/// launcher of another kind. Each would take itself for the whole job.
struct UnseenLauncher {
  std::string name;      ///< "srun"
  std::string signs;     ///< "SLURM_STEP_NUM_TASKS=64 and SLURM_PROCID=3"
  std::string to_join;   ///< what starts one job instead
  std::string variable;  ///< whose absence says that this process is alone after all
};
/// None where launched() knows the job, and where nothing says that there is another copy: on a login node, in a batch
/// script, in a step of one task.
std::optional<UnseenLauncher> unseen_launcher();
/// For commands that are one job on all ranks. @throws ConfigError with the remedy.
void refuse_unseen_launcher();
/// For commands that are one process and write: several copies would write into one folder, or race for one core.
/// @throws ConfigError with the remedy if any launcher has started several.
void refuse_copies(const std::string& command);

/// Variables of the environment by which a launcher tells its processes who they are. A process that is to run by
/// itself must not inherit them. Prefixes: "OMPI_", …
std::span<const char* const> launcher_prefixes();

/// Lets rank 0 speak first where all ranks may have found the same: the others wait, and it ends the job meanwhile. A
/// rank with news of its own is heard after `patience` and up to two seconds more.
void let_rank_0_speak(const Launched& me, std::chrono::milliseconds patience);

/// Ends this process and, as far as the launcher can be asked, the whole job with this exit code and without a word of
/// the launcher's. For processes that have not begun to communicate.
[[noreturn]] void end_job(const Launched& me, int exit_code);

}  // namespace athanor
