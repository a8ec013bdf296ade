#pragma once
// `athanor launch --yeet FOLDER`: before the first rank starts, files are sent to a folder on the disk of each node
// (staging/yeet.h), and the ranks use these. They are the program, the libraries that it has from elsewhere than the
// system, and the training's data. Thousands of processes that load libraries from one file system at the same time
// wait for it for minutes.

#include <filesystem>
#include <string>
#include <vector>

#include "launch/plan.h"

namespace athanor::launch {

/// What is sent into one folder by one call of `athanor yeet`.
struct StagedFolder {
  std::filesystem::path folder;
  std::vector<std::string> sources;
};

struct StagedRun {
  std::vector<StagedFolder> folders;
  std::vector<std::string> command;  ///< uses what was sent
  std::string left_out;              ///< a sentence on what stays where it is; may be empty
};

/// @param command  `athanor train CONFIG …`, or another one of this program: only the program is sent then.
/// @param own_program  the path of this program. @param target  the folder on the nodes.
/// @throws ConfigError for a command of another program, a configuration that is refused, and if the libraries of this
///         program cannot be listed.
StagedRun find_staged_run(const std::vector<std::string>& command, const std::string& own_program,
                          const std::filesystem::path& target, const Surroundings& here);

/// Sends it to all nodes of the job that `request` names, with one rank on each. @return the exit code.
int stage(const StagedRun& staged, const LaunchRequest& request, const Surroundings& here);

}  // namespace athanor::launch
