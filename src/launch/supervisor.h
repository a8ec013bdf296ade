#pragma once
// `athanor launch` while its command runs: the output is kept, a command without progress is ended, the end is judged,
// and another attempt follows if that may help.

#include <filesystem>
#include <optional>
#include <string>

#include "launch/failover.h"
#include "launch/job_chain.h"
#include "launch/launcher_command.h"

namespace athanor::launch {

struct Supervision {
  std::filesystem::path attempts;  ///< the folder; empty: attempts/ in the run folder of a training; of another command
                                   ///< ./attempts if there may be retries, else none
  std::string own_program;         ///< the path of this program
  double timeout_s = 0;            ///< without progress; 0: no limit (launch/progress_watch.h)
  FailoverLimits limits;
  std::optional<int> spares = {};  ///< the most that are used; nothing: automatic_spares

  std::optional<ChainRequest> chain = {};  ///< further jobs continue the run; nothing: none is submitted

  bool may_retry() const { return limits.retries > 0 || limits.may_swap; }
};

/// Returns the hosts of the job beyond those in use that have room for the ranks of any place, `wanted` of them or
/// automatic_spares at most.
std::vector<Host> usable_spares(const LaunchPlan& plan, std::optional<int> wanted);

/// Runs the plan's command, and runs it again as launch/failover.h decides, in this job or in the next one
/// (launch/job_chain.h). Nothing is written before the checks of a
/// training's start have passed: an attempt that was refused leaves nothing. If there may be retries, the last line
/// tells why there is no further one.
/// @return the exit code of the last attempt: 124 if it was ended for want of progress, 128 + n for a launcher that the
///         signal n ended.
/// @throws ConfigError if a program cannot be started; IoError if the attempts folder cannot be written.
int supervise(const LaunchPlan& plan, const Surroundings& here, const Supervision& supervision);

}  // namespace athanor::launch
