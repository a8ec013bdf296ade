#include "launch/run_records.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <utility>

#include "base/bounded_json.h"
#include "base/error.h"
#include "record/events.h"
#include "record/json_lines.h"
#include "record/run_folder.h"
#include "record/step_lines.h"

namespace athanor::launch {

namespace fs = std::filesystem;
namespace {

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

uint64_t size_of(const fs::path& file) {
  std::error_code none;
  const auto size = fs::file_size(file, none);
  return none ? 0 : size;
}

std::string words_of(const fs::path& run_dir) { return text_of(RunFolder{run_dir}.last_words()); }

void for_each_event_of(const fs::path& run_dir, uint64_t begin, const std::function<void(const Event&)>& take) {
  try {
    for_each_event(RunFolder{run_dir}.events(), begin, take);
  } catch (const IoError&) {
    // the launcher continues without what a disk that is away would tell
  }
}

void for_each_newest_step_of(const fs::path& run_dir, const std::function<void(int64_t step, int64_t attempt)>& take) {
  try {
    for_each_newest_step(RunFolder{run_dir}.metrics(), take);
  } catch (const IoError&) {
    // as above
  }
}

}  // namespace

RunRecords read_records(const fs::path& run_dir) {
  RunRecords records{words_of(run_dir), size_of(RunFolder{run_dir}.events()), 0};
  for_each_event_of(run_dir, 0,
                    [&](const Event& event) { records.attempt = std::max(records.attempt, event.attempt); });
  return records;
}

bool has_begun(const fs::path& run_dir, const RunRecords& before) {
  return size_of(RunFolder{run_dir}.events()) != before.events_bytes;
}

std::optional<LastWords> fresh_last_words(const fs::path& run_dir, const RunRecords& before) {
  const std::string text = words_of(run_dir);
  const auto json = read_json(text);
  if (!json.is_object() || text == before.last_words) return std::nullopt;
  LastWords words;
  words.exit_code = static_cast<int>(integer_in(json, "exit_code"));
  if (json.contains("rank") && json["rank"].is_number_integer()) words.rank = json["rank"].get<int>();
  if (json.contains("host") && json["host"].is_string()) words.host = json["host"];
  if (const auto missing = json.find("missing"); missing != json.end() && missing->is_array()) {
    words.host.clear();  // the reporter's
    for (const auto& each : *missing) {
      const std::string host = each.is_object() ? each.value("host", "") : "";
      if (!host.empty() && std::ranges::find(words.missing, host) == words.missing.end()) words.missing.push_back(host);
    }
  }
  if (json.contains("text") && json["text"].is_string()) words.text = json["text"];
  return words;
}

Steps steps_since(const fs::path& run_dir, const RunRecords& before) {
  Steps steps;
  for_each_newest_step_of(run_dir, [&](int64_t step, int64_t attempt) {
    if (attempt > before.attempt) steps.last = step;
  });
  if (!steps.last) return steps;
  for_each_event_of(run_dir, before.events_bytes, [&](const Event& event) {
    if (event.is_start() && !steps.first) steps.first = event.step + 1;
  });
  return steps;
}

std::optional<int64_t> greatest_step(const fs::path& run_dir) {
  std::optional<int64_t> greatest;
  for_each_newest_step_of(run_dir, [&](int64_t step, int64_t) { greatest = std::max(greatest.value_or(0), step); });
  return greatest;
}

StopRecord stop_since(const fs::path& run_dir, const RunRecords& before) {
  StopRecord stop;
  for_each_event_of(run_dir, before.events_bytes, [&](const Event& event) {
    if (event.kind == "stop") stop = {event.line.contains("limit"), static_cast<int>(event.integer("signal"))};
  });
  return stop;
}

std::optional<int> end_code_since(const fs::path& run_dir, const RunRecords& before) {
  std::optional<int> code;
  for_each_event_of(run_dir, before.events_bytes, [&](const Event& event) {
    if (event.kind == "end") code = static_cast<int>(event.integer("exit_code"));
  });
  return code;
}

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
