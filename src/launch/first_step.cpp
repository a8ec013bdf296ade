#include "launch/first_step.h"

#include <charconv>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "base/error.h"
#include "record/run_folder.h"
#include "record/step_lines.h"

namespace athanor::launch {

std::optional<double> first_step_time_s(const std::filesystem::path& run_dir, const RunRecords& before) {
  try {
    return time_of_first_step(RunFolder{run_dir}.metrics(), before.attempt);
  } catch (const IoError&) {
    return {};  // a disk that is away; it is read again
  }
}

JobStart job_start(const Surroundings& here, double fallback_s) {
  if (const auto text = here.variable("SLURM_JOB_START_TIME")) {
    int64_t seconds = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
    if (error == std::errc() && end == text->data() + text->size() && seconds > 0)
      return {static_cast<double>(seconds), "the job"};
  }
  return {fallback_s, "athanor launch"};
}

FirstStepWatch::FirstStepWatch(const std::filesystem::path& run_dir, std::chrono::milliseconds interval,
                               std::function<void(double)> tell)
    : thread_([run_dir, interval, tell = std::move(tell), before = read_records(run_dir)](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested()) {
          wake.wait_for(lock, stop, interval, [] { return false; });
          if (const auto time_s = first_step_time_s(run_dir, before)) return tell(*time_s);
        }
      }) {}

}  // namespace athanor::launch
