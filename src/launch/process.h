#pragma once
// Runs programs with a vector of arguments, never through a shell, and waits for them.
//
// Each started program has its own process group, so that a key of the terminal does not reach it a second time, and it
// gets SIGTERM if this process is killed. Errors: ConfigError if a program cannot be started.

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/child.h"
#include "launch/output_tee.h"
#include "launch/surroundings.h"
#include "launch/waited_signals.h"

namespace athanor::launch {

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
