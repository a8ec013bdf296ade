#pragma once
// Jobs that follow one another until a run is complete (--resubmit).
//
// A job submits its successor when its run has begun, and the successor waits for its end (`afterany`). So a job that
// is killed at once, with a node or for its time, has one. Where none should follow, it is cancelled.
// ATTEMPTS/jobs.jsonl has a line for each job: `job`, `number` (from 1 in the chain), `step` (that it started from),
// `next`, `time`, and one with `cancelled` for a successor that was cancelled. ATTEMPTS/job-script is what Slurm gets,
// and ATTEMPTS/submitted has the answer of the scheduler.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/job_limit.h"
#include "launch/allocation.h"
#include "launch/verdict.h"

namespace athanor::launch {

struct ChainRequest {
  int max_jobs = 100;      ///< the length of a chain
  std::string job_script;  ///< what is submitted; "": that of this job, which only Slurm keeps
};

class JobChain {
 public:
  /// Looks for the script, but submits nothing. @throws ConfigError without a job of Slurm or PBS, or without a script.
  JobChain(const Allocation& allocation, const Surroundings& here, ChainRequest request);

  /// Submits the next job, unless this one has done so. Call it when the run has begun, and again while it runs.
  /// If the job before this one took no step, the next one is submitted only when this one has taken one.
  /// @param start_step  the newest step when the job began; nothing: not known. @param has_stepped  a step was done
  ///                    since. Failures are warnings.
  /// @param gives_up  asked while the scheduler is waited for, which may take two minutes; empty: never.
  void look(const std::filesystem::path& attempts, std::optional<int64_t> start_step, bool has_stepped,
            const std::function<bool()>& gives_up = {});

  /// Seconds until the end of this job; nothing: it has no limit, or none is known.
  std::optional<double> left_s() const;

  /// Tells whether the next job shall continue; if not, it is cancelled. The log states which of the two, and why.
  void end(const std::filesystem::path& attempts, bool continues, const std::string& why);

 private:
  std::optional<std::string> submit(const std::filesystem::path& attempts, const std::function<bool()>& gives_up) const;
  void note(const std::filesystem::path& attempts, const std::string& line) const;
  std::filesystem::path kept_script(const std::filesystem::path& attempts) const;

  Scheduler scheduler_;
  std::string job_;
  Surroundings here_;
  ChainRequest request_;
  std::optional<JobLimit> limit_;
  std::string script_;  // the text of Slurm's
  bool has_looked_ = false, is_last_ = false;
  int number_ = 1;
  bool was_idle_ = false;  // the job before this one took no step
  std::string next_;
};

/// The place of a job in its chain, by the lines of jobs.jsonl.
struct ChainPlace {
  int number = 1;
  std::string next;       ///< this job has submitted it before: it was started again
  bool was_idle = false;  ///< the job before it took no step
};
ChainPlace place_in_chain(const std::string& lines, const std::string& job, std::optional<int64_t> start_step);

/// Returns the command that submits a script so that it starts when `job` has ended.
/// @param details  what `scontrol -o show job` prints: options of the command line that the script does not have.
std::vector<std::string> submit_words(Scheduler scheduler, const std::string& job, const std::string& details,
                                      const std::string& script, const Surroundings& here);

/// How the last attempt of a job ended, as far as it decides whether another job should follow.
struct JobEnding {
  Cause cause = Cause::kUnknown;
  bool was_told_to_stop = false;      ///< by a signal to `athanor launch`, or to the run
  bool had_limit = false;             ///< the run stopped by itself for a limit of time
  std::optional<double> left_s = {};  ///< until the end of the job; nothing: no limit is known
};
/// Returns whether the next job continues: after a limit of time; after a signal if the time is nearly up, when it is a
/// scheduler's warning; after failures that time or other nodes may cure.
bool continues_in_next_job(const JobEnding& ending);

}  // namespace athanor::launch
