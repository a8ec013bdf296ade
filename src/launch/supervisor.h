#pragma once
// `athanor launch` while its command runs: the output is kept, the end is judged, and a record of it stays in the
// attempts folder.

#include <filesystem>
#include <string>

#include "launch/launcher_command.h"

namespace athanor::launch {

struct Supervision {
  std::filesystem::path attempts;  ///< the folder; empty: attempts/ in the run folder of a training, else none
  std::string own_program;         ///< the path of this program
};

/// Runs the plan's command. Nothing is written before the checks of a training's start have passed: an attempt that was
/// refused leaves nothing.
/// @return the exit code of the command; 128 + n for a launcher that the signal n ended.
/// @throws ConfigError if a program cannot be started; IoError if the attempts folder cannot be written.
int supervise(const LaunchPlan& plan, const Surroundings& here, const Supervision& supervision);

}  // namespace athanor::launch
