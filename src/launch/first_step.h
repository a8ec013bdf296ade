#pragma once
// Reports how long after the job's start a training's first step was complete: the figure by which ways to start a job
// are compared.

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "launch/run_records.h"
#include "launch/surroundings.h"

namespace athanor::launch {

/// Returns the time at which the first step since was recorded, in seconds since 1970.
std::optional<double> first_step_time_s(const std::filesystem::path& run_dir, const RunRecords& before);

/// When the job began, and by what that is known: by Slurm (SLURM_JOB_START_TIME), else `fallback_s`, the start of this
/// program.
struct JobStart {
  double time_s;
  const char* what;  ///< "the job", "athanor launch"
};
JobStart job_start(const Surroundings& here, double fallback_s);

/// Looks into the run folder until the first step after this call is there, or this object ends. Calls `tell` once, in
/// its thread.
class FirstStepWatch {
 public:
  FirstStepWatch(const std::filesystem::path& run_dir, std::chrono::milliseconds interval,
                 std::function<void(double time_s)> tell);

 private:
  std::jthread thread_;
};

}  // namespace athanor::launch
