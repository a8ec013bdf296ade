#pragma once
// Job scripts to start from: those of examples/, whose middle is replaced by `athanor launch`.
//
// The build takes the text of the examples into the program, so that there is one version of what they do before and
// after the run: waiting for signals, continuing in another job by the exit code.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/allocation.h"

namespace athanor::launch {

/// The example of a scheduler as it is in examples/: that for CPUs. Slurm and PBS have one.
std::string_view example_job_script(Scheduler scheduler);

struct JobScriptRequest {
  std::optional<int> nodes, per_node;  ///< not set: as in the example, for the user to adapt
  std::vector<std::string> launch;     ///< the words `athanor launch ...` before the `--`
  std::vector<std::string> command;    ///< the words after it
  bool launch_submits = false;         ///< `athanor launch` submits the next job (--resubmit), and the script does not
};

/// Returns the script for Slurm or PBS, with each value of the request quoted.
std::string job_script(Scheduler scheduler, const JobScriptRequest& request);

}  // namespace athanor::launch
