#pragma once
// One attempt of a command under `athanor launch`: it is started, its output is kept, it is ended if it makes no
// progress, and its end is judged.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "launch/attempts.h"
#include "launch/host_names.h"
#include "launch/launcher_command.h"
#include "launch/mpi_flavour.h"
#include "launch/output_tee.h"
#include "launch/process.h"
#include "launch/progress_watch.h"
#include "launch/run_records.h"

namespace athanor::launch {

/// Why an attempt ended, from all that `athanor launch` knows of it: first from what the run reported itself (its exit
/// code, its last words, the board), then from its log.
struct AttemptEnding {
  int exit_code = 0;
  bool is_training = false;                ///< `athanor train`, whose codes mean what docs/exit-codes.md lists
  bool was_told_to_stop = false;           ///< by a signal to `athanor launch`
  bool was_overdue = false;                ///< the watchdog ended it
  std::vector<std::string> at_fault = {};  ///< after a hang: hosts_at_fault (launch/progress_watch.h)
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

/// What stays the same over the attempts of a call.
struct AttemptSetting {
  std::optional<std::filesystem::path> run_dir;  ///< that of a training; nothing for another command
  std::filesystem::path attempts;                ///< the folder attempts/; empty: nothing is kept
  std::string own_program;
  double timeout_s = 0;
};

/// Called ten times a second while an attempt runs, as soon as it has a folder.
using WhileItRuns = std::function<void()>;

class AttemptRun {
 public:
  /// @param attempts_before  those of this call.
  AttemptRun(const LaunchPlan& plan, const Surroundings& here, const WaitedSignals& signals,
             const AttemptSetting& setting, int attempts_before)
      : plan_(plan), here_(here), signals_(signals), setting_(setting), attempts_before_(attempts_before) {}

  /// Runs it to its end. Nothing is written before the checks of a training's start have passed: a first attempt that
  /// was refused, or was told to stop before it began, leaves nothing.
  Attempt run(const WhileItRuns& while_it_runs = {});

  bool has_folder() const { return has_folder_; }  ///< it has left one
  bool was_told_to_stop() const { return signal_ != 0; }
  int stop_signal() const { return signal_; }  ///< the first that came, if it is SIGTERM, SIGINT or SIGHUP; 0: none
  /// Returns how a training stopped, by its own records.
  StopRecord stop() const;
  /// Returns whether a training has done a step.
  bool has_stepped() const;

 private:
  ProgramsEnd start_and_wait(OutputTee* tee, const std::function<bool()>& look);
  LaunchCommand command() const;
  std::filesystem::path stop_file() const;
  void note_stop(int signal);
  bool leaves_record(const ProgramsEnd& end) const;
  void make_folder(OutputTee& tee);
  void warn_of_record(const IoError& error) const;
  void keep_evidence(const ProgressWatch& watch, OutputTee& tee);
  void judge(const ProgramsEnd& end, std::vector<std::string> at_fault);

  const LaunchPlan& plan_;
  const Surroundings& here_;
  const WaitedSignals& signals_;
  const AttemptSetting& setting_;
  const int attempts_before_;
  Attempt attempt_;
  RunRecords before_;
  bool has_folder_ = false, is_running_ = false;
  int signal_ = 0;
};

}  // namespace athanor::launch
