#pragma once
// Runs programs with a vector of arguments, never through a shell, and waits for them and for signals.
//
// Each started program has its own process group, so that a key of the terminal does not reach it a second time. It
// gets SIGTERM if this process is killed. Errors: ConfigError if a program cannot be started.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/child.h"
#include "launch/output_tee.h"
#include "launch/surroundings.h"

namespace athanor::launch {

/// Whether who sends the signal wants the command to end: SIGTERM, SIGINT or SIGHUP.
constexpr bool asks_to_stop(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP; }

/// The signals that `athanor launch` waits for, as events that are read together with the output of its programs.
///
/// Blocks SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD during its lifetime, so that they are read here. A
/// write to a pipe that has no reader fails meanwhile (SIGPIPE is blocked, too). Only one may exist at a time, and
/// threads that are there before it must not take these signals.
class WaitedSignals {
 public:
  WaitedSignals();
  ~WaitedSignals();
  WaitedSignals(const WaitedSignals&) = delete;
  WaitedSignals& operator=(const WaitedSignals&) = delete;

  /// Can be read if there is a signal.
  int descriptor() const { return descriptor_; }
  /// Returns the number of a signal that has come, or 0. Does not wait.
  int take() const;
  /// Returns whether a signal that is not SIGCHLD waits to be taken.
  static bool has_come();
  /// Returns the number of a signal as soon as one comes that is not SIGCHLD, or 0 after a while.
  int wait(std::chrono::milliseconds at_most) const;

 private:
  sigset_t old_;
  struct sigaction old_child_ {};
  int descriptor_ = -1;
};

/// Returns which signal to send in place of the one that this process got; 0 for none.
using PassedSignal = std::function<int(int)>;

/// What happens while programs run.
struct RunOptions {
  PassedSignal passed = {};  ///< empty: signals are passed on as they are
  double patience_s = 30;
  OutputTee* tee = nullptr;  ///< gets their output; null: they have the streams of this process
  /// Asked at least ten times a second; true: the programs get SIGTERM, and ten seconds later SIGKILL. Empty: never.
  std::function<bool()> is_overdue = {};
  double kill_after_s = 10;  ///< from SIGTERM to SIGKILL
  /// Signals go to what a program has started as well, as `mpirun` sends them: a rank may be a script that starts the
  /// training. What is left of a program that was overdue is killed with it.
  bool to_groups = false;
};

struct ProgramsEnd {
  int exit_code = 0;              ///< that of the first program that failed, or 0; 128 + n if the signal n ended it
  bool was_told_to_stop = false;  ///< by SIGTERM, SIGINT or SIGHUP to this process
  bool was_overdue = false;
};

/// Runs programs at the same time until all have ended. SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to
/// each. If one fails and others have not ended `patience_s` later, these get SIGTERM, and then SIGKILL.
ProgramsEnd run_programs(const std::vector<Program>& programs, const WaitedSignals& signals,
                         const RunOptions& options = {});

/// Runs one program whose output goes into a file, and returns its exit code; nothing if it was ended, after `limit` or
/// because `gives_up` (asked a hundred times a second; empty: never) returned true: by SIGTERM, and SIGKILL two seconds
/// later. @throws IoError if the file cannot be made.
std::optional<int> run_into_file(const Program& program, const std::filesystem::path& file, std::chrono::seconds limit,
                                 const std::function<bool()>& gives_up = {});

/// Runs a tool and returns what it prints to standard output and standard error; nothing if it is not on the path,
/// fails or takes longer than `here.tool_limit` (it is then killed). At most a mebibyte is read.
std::optional<std::string> ask_tool(const std::vector<std::string>& words, const Surroundings& here);

}  // namespace athanor::launch
