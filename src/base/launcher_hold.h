#pragma once
// Keeps the launcher from killing this rank while it saves.
//
// If Open MPI's mpirun is asked to end (SIGTERM, SIGINT, SIGHUP), it sends SIGTERM to the ranks and SIGKILL one second
// later (its parameter odls_base_sigkill_timeout). A step may take longer. A rank cannot refuse SIGKILL, but it may
// stop the process that would send it: on each host this is the daemon that started the rank (mpirun itself, or orted).
// SIGSTOP stops the daemon as soon as the rank learns of the end, and the daemon continues when everything is saved. If
// the rank ends in between, however it ends, a small waiting shell lets the daemon continue.
//
// mpirun sends the same signals if another rank has failed. Then there is nothing to save, and the job has to end soon.
// So the daemon is not stopped if a rank of this host is gone or if a failure was recorded in the run folder. It
// continues after a limit of time if the ranks do not agree on the end (a rank of another host was killed).
//
// `athanor launch` knows whether it was told to stop, and notes it in the file that kStopFileVariable names before it
// passes the signal on. Under it the daemon is stopped only if that file is there, at once or half
// a second later.

#include <sys/types.h>

#include <csignal>
#include <string>

namespace athanor {

/// The variable with the absolute path of the file that `athanor launch` makes when it is told to stop.
inline constexpr const char* kStopFileVariable = "ATHANOR_STOP_FILE";

/// The daemon of Open MPI that started this process. Only one object may exist at a time. Under other launchers, which
/// give ranks the time that they need (docs/signals.md), every function does nothing.
class LauncherHold {
 public:
  /// Looks for the daemon among the parents of this process, and starts the waiting shell on the first rank of a host.
  LauncherHold();
  /// Lets the daemon continue.
  ~LauncherHold();
  LauncherHold(const LauncherHold&) = delete;
  LauncherHold& operator=(const LauncherHold&) = delete;

  /// From now on hold() acts. Before the first call there is nothing to save.
  /// @param limit_s       seconds that the daemon is stopped at most, unless keep() is called.
  /// @param failure_file  exists if a rank has failed.
  void arm(double limit_s, const std::string& failure_file);

  /// Stops the daemon, unless the job has failed. A handler of a signal may call this; a second call changes nothing.
  static void hold() noexcept;
  /// Stops the daemon without a limit of time: call it when all ranks have agreed on the end.
  void keep() noexcept;
  /// Lets the daemon continue, which then ends the ranks of its host at once: call it when no rank has work left. A
  /// handler of a signal may call this too.
  static void release() noexcept;

 private:
  pid_t shell_ = 0;
  bool armed_ = false;
  struct sigaction old_alarm_ {};
};

}  // namespace athanor
