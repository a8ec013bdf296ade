#pragma once
// Starts programs with a vector of arguments, never through a shell, and waits for them.
//
// Each started program has its own process group, so that a key of the terminal does not reach it a second time, and it
// gets SIGTERM if this process is killed. Errors: ConfigError if a program cannot be started.

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/surroundings.h"

namespace athanor::launch {

struct Program {
  std::vector<std::string> words;  ///< the first is looked up on PATH unless it has a slash
  std::vector<std::pair<std::string, std::string>> variables = {};  ///< added to the environment
  std::vector<int> cpus = {};                                       ///< it may run on these; empty: as this process
};

/// Starts a program and returns its process. @throws ConfigError with the system's reason if it cannot be started.
pid_t start_program(const Program& program);

/// Returns which signal to send in place of the one that this process got; 0 for none.
using PassedSignal = std::function<int(int)>;

/// Runs programs at the same time until all have ended. SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to
/// each. If one fails and others have not ended `patience_s` later, these get SIGTERM, and ten seconds later SIGKILL.
/// Only one call may run in a process, since signals belong to the process.
/// @return the exit code of the first program that failed, or 0; 128 + n for one that the signal n ended.
int run_programs(const std::vector<Program>& programs, const PassedSignal& passed, double patience_s = 30);

/// Runs a tool and returns what it prints to standard output and standard error; nothing if it is not on the path,
/// fails or takes longer than `here.tool_limit` (it is then killed). At most a mebibyte is read.
std::optional<std::string> ask_tool(const std::vector<std::string>& words, const Surroundings& here);

}  // namespace athanor::launch
