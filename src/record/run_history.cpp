#include "record/run_history.h"

#include <algorithm>
#include <chrono>

#include "base/files.h"
#include "base/log.h"
#include "base/wall_clock.h"
#include "record/events.h"

namespace athanor::inline record {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr int64_t kMaxAttempts = 1'000'000'000;  // a start each second for thirty years; a larger number did not come
                                                 // from counting

void take_event(const Event& event, RunHistory& history) {
  if (event.attempt <= kMaxAttempts) history.attempts = std::max(history.attempts, event.attempt);
  history.complete = event.kind == "end" && event.integer("exit_code", 1) == 0;
  history.branch = event.integer("branch", history.branch);
  if (event.kind == "save") history.saved = history.saved_since_asked = true;
  const auto asked = event.line.find("asked");
  if (asked == event.line.end() || !asked->is_string() || asked->get_ref<const std::string&>().empty()) return;
  history.asked = *asked;
  history.saved_since_asked = false;
}

// A process that was killed, or a full disk, may have left a line without its end.
bool ends_within_a_line(const fs::path& path) {
  std::error_code none;
  const auto size = fs::file_size(path, none);
  if (none || size == 0) return false;
  return MappedFile(path).text().back() != '\n';
}

}  // namespace

RunHistory read_history(const fs::path& events) {
  RunHistory history;
  history.known = fs::is_regular_file(events);
  if (!history.known) return history;
  for_each_event(events, 0, [&](const Event& event) { take_event(event, history); });
  return history;
}

EventLog::EventLog(fs::path path, int64_t attempt) : path_(std::move(path)), attempt_(attempt) {}

void EventLog::add(const char* event, int64_t step, nlohmann::ordered_json more) {
  nlohmann::ordered_json line = {{"event", event}, {"time", unix_time_s()}, {"attempt", attempt_}, {"step", step}};
  line.update(more);
  const std::lock_guard lock(mutex_);
  try {
    const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    if (!lines_) {
      const bool torn = ends_within_a_line(path_);
      lines_ = std::make_unique<AppendFile>(path_);
      if (torn) lines_->append("\n");
    }
    lines_->append(text);
  } catch (const std::exception& error) {
    if (!std::exchange(warned_, true))
      log::warn("{}: this run's history has a gap until this is corrected", error.what());
  }
}

}  // namespace athanor::inline record
