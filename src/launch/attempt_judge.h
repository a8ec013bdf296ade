#pragma once
// Why an attempt ended, from all that `athanor launch` knows of it: first from what the run reported itself (its exit
// code, its last words, the board), then from its log.

#include <filesystem>
#include <optional>

#include "launch/attempts.h"
#include "launch/host_names.h"
#include "launch/mpi_flavour.h"
#include "launch/run_records.h"

namespace athanor::launch {

struct AttemptEnding {
  int exit_code = 0;
  bool is_training = false;                ///< `athanor train`, whose codes mean what docs/exit-codes.md lists
  bool was_told_to_stop = false;           ///< by a signal to `athanor launch`
  bool was_overdue = false;                ///< the watchdog ended it
  std::vector<std::string> at_fault = {};  ///< after a hang: hosts_at_fault (launch/watchdog.h)
  std::optional<LastWords> words = {};
  std::string stop_signal = "";    ///< by which a rank was asked to stop, so that the run saved and ended; "": none
  Steps steps = {};                ///< empty for another command
  std::filesystem::path log = {};  ///< empty: there is none
};

/// Returns the code with which a training ended. The launcher's own code tells less in three cases, for which the run's
/// history is read: after a signal the mpirun of Open MPI returns 1, whatever its ranks return; some time after the
/// first rank has ended, srun ends those that are left by a signal, and returns that; the mpiexec of MPICH may return 0
/// although a rank was killed or returned another code.
int code_of_run(int launchers_code, Flavour launcher, const std::filesystem::path& run_dir, const RunRecords& before);

/// Fills in all of the attempt that its ending tells, except its number and times.
void judge_attempt(Attempt& attempt, const AttemptEnding& ending, const JobHosts& hosts);

}  // namespace athanor::launch
