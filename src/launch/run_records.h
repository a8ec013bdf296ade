#pragma once
// What a training run's own folder tells of an attempt: its last words, its steps, and when the first of them came.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/surroundings.h"
#include "launch/verdict.h"

namespace athanor::launch {

/// The records of a run folder at a moment, against which later ones are compared. Files that are not there are empty.
struct RunRecords {
  std::string last_words;
  uint64_t events_bytes = 0;
  int64_t attempt = 0;  ///< that of the newest event, as the run counts them; 0: none
};
RunRecords read_records(const std::filesystem::path& run_dir);

/// Returns whether a start has passed its checks since: the run's history has grown.
bool has_begun(const std::filesystem::path& run_dir, const RunRecords& before);

/// Returns the last words if they were written since: those of an earlier attempt stay where a start is refused.
std::optional<LastWords> fresh_last_words(const std::filesystem::path& run_dir, const RunRecords& before);

/// The steps that were done since.
struct Steps {
  std::optional<int64_t> first = {}, last = {};
};
Steps steps_since(const std::filesystem::path& run_dir, const RunRecords& before);

/// Returns the greatest step that the newest lines of metrics have; nothing: there is none.
std::optional<int64_t> greatest_step(const std::filesystem::path& run_dir);

/// How a run that was not complete came to stop, by its own history.
struct StopRecord {
  bool by_limit = false;  ///< the limit of the job, or train.stop_after
  int signal = 0;         ///< 0: none
};
/// Returns the newest one since.
StopRecord stop_since(const std::filesystem::path& run_dir, const RunRecords& before);

/// Returns the exit code with which the run's history ended since; nothing if it has no end.
std::optional<int> end_code_since(const std::filesystem::path& run_dir, const RunRecords& before);

/// Returns the time at which the first step since was recorded, in seconds since 1970.
std::optional<double> first_step_time_s(const std::filesystem::path& run_dir, const RunRecords& before);

/// When the job began, and by what that is known: by Slurm (SLURM_JOB_START_TIME), else `fallback_s`, the start of this
/// program.
struct JobStart {
  double time_s;
  const char* what;  ///< "the job", "athanor launch"
};
JobStart job_start(const Surroundings& here, double fallback_s);

/// Reports the time of a training's first step: how long it came after the job's start is the figure by which ways to
/// start a job are compared. Looks into the run folder until the first step after this call is there, or this object
/// ends. Calls `tell` once, in its thread.
class FirstStepWatch {
 public:
  FirstStepWatch(const std::filesystem::path& run_dir, std::chrono::milliseconds interval,
                 std::function<void(double time_s)> tell);

 private:
  std::jthread thread_;
};

}  // namespace athanor::launch
