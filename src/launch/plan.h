#pragma once
// From the wishes of the user and what is found here to the plan of a start: `athanor launch` in one call.

#include <optional>
#include <string>
#include <vector>

#include "launch/launcher_command.h"

namespace athanor::launch {

/// The options of `athanor launch`.
struct LaunchRequest {
  AllocationRequest allocation;
  RankRequest ranks;
  std::string launcher = "auto";
  std::string exclude_cores;  ///< a list of processors; empty: none
  int reserve_cores = 0;      ///< cores of each rank
  std::vector<std::string> command;
  std::string own_program;  ///< stands for a command `athanor` that is not on the path; empty: nothing does
};

/// Starts nothing but tools that answer what they are, each with a limit on its time.
/// @throws ConfigError for everything that would make the start fail, with what was found.
LaunchPlan make_plan(const LaunchRequest& request, const Surroundings& here);

/// What was found and where, and what each part of the command was derived from: comments of a shell, and then the
/// command, which may be pasted. @param port  for ranks without MPI: at which they would meet.
/// @param spares  hosts that may take the place of others; empty: no line names them.
std::string dry_run_text(const LaunchPlan& plan, const LaunchCommand& command, int port,
                         const std::vector<Host>& spares = {});

}  // namespace athanor::launch
