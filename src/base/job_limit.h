#pragma once
// When the scheduler will end the job that this process is in.

#include <functional>
#include <optional>
#include <string>

namespace athanor {

struct JobLimit {
  std::string job;       ///< "Slurm job 123"
  double ends_at_s = 0;  ///< seconds since 1970
};

/// True if a text has only the characters of the ids of jobs: "123", "123_4", "123[].server".
bool is_job_id(const std::string& id);

/// Returns what a shell command writes to standard output; "" if it fails. Commands are given ten seconds.
std::string output_of(const std::string& command);

/// Asks the scheduler whose job the environment names: Slurm (SLURM_JOB_END_TIME, else scontrol) or PBS (qstat).
/// Returns nothing without a job, for a job without a limit, and if the scheduler does not answer.
/// @param run  runs a command; tests pass another function.
std::optional<JobLimit> find_job_limit(const std::function<std::string(const std::string&)>& run = output_of);

}  // namespace athanor
