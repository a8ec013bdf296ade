#include "launch/first_step.h"

#include <charconv>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <utility>

#include "base/bounded_json.h"

namespace athanor::launch {

std::optional<double> first_step_time_s(const std::filesystem::path& run_dir, const RunRecords& before) {
  std::ifstream lines(run_dir / "metrics.jsonl", std::ios::binary);
  for (std::string line; std::getline(lines, line);) {
    const auto json = read_json(line);
    if (!json.is_object() || !json.contains("time") || !json["time"].is_number()) continue;
    const auto number = [&](const char* key) {
      return json.contains(key) && json[key].is_number_integer() ? json[key].get<int64_t>() : 0;
    };
    if (number("attempt") > before.attempt && number("step") > 0) return json["time"].get<double>();
  }
  return {};
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
