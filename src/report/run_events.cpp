#include "report/run_events.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/files.h"

namespace athanor {
namespace {

using Event = nlohmann::json;

std::string text_in(const Event& event, const char* name) {
  const auto found = event.find(name);
  if (found == event.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->is_number() ? found->dump() : "";
}

int64_t integer_in(const Event& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// The fields that tell most of each kind (docs/metrics.md), in one line.
std::string describe(const Event& event, const std::string& kind) {
  std::string said;
  const auto add = [&](const std::string& what, const std::string& value) {
    if (!value.empty()) said += (said.empty() ? "" : ", ") + what + value;
  };
  if (kind == "start" || kind == "resume" || kind == "went_back") {
    add("from ", text_in(event, "from"));
    add("ranks ", text_in(event, "ranks"));
    add("first host ", text_in(event, "host"));
  } else if (kind == "save" || kind == "save_failed") {
    add("", text_in(event, "kind"));
    add("seconds ", text_in(event, "seconds"));
  } else if (kind == "evaluation") {
    add("documents ", text_in(event, "documents"));
  } else if (kind == "rule") {
    add("", text_in(event, "action"));
    add("", text_in(event, "rule"));
  } else if (kind == "end") {
    add("exit code ", text_in(event, "exit_code"));
    add("", text_in(event, "cause"));
  } else if (kind == "stop") {
    add("signal ", text_in(event, "signal"));
    add("limit ", text_in(event, "limit"));
    add("rule ", text_in(event, "rule"));
  }
  add("", text_in(event, "text"));
  return said;
}

std::string shortened(std::string text) {
  constexpr size_t kMost = 1000;
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "…";
}

}  // namespace

std::vector<RunEvent> read_run_events(const std::filesystem::path& file) {
  static const std::set<std::string> kShownEvents = {"resume", "went_back",  "skip",        "roll_back",
                                                     "spike",  "not_finite", "save_failed", "rule",
                                                     "stop",   "level",      "lr_jump",     "stuck"};
  std::vector<RunEvent> events;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return events;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    const Event event = Event::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) continue;
    RunEvent read;
    read.kind = text_in(event, "event");
    if (read.kind.empty()) continue;
    read.step = integer_in(event, "step");
    read.attempt = integer_in(event, "attempt");
    read.ranks = integer_in(event, "ranks");
    if (event.contains("time") && event["time"].is_number()) read.time = event["time"].get<double>();
    read.text = shortened(describe(event, read.kind));
    read.is_shown = kShownEvents.contains(read.kind) || (read.kind == "end" && integer_in(event, "exit_code") != 0);
    events.push_back(std::move(read));
  }
  return events;
}

}  // namespace athanor
