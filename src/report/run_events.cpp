#include "report/run_events.h"

#include <set>

#include "record/events.h"

namespace athanor::inline report {
namespace {

// The fields that tell most of each kind (docs/metrics.md), in one line.
std::string describe(const Event& event) {
  const std::string& kind = event.kind;
  std::string said;
  const auto add = [&](const std::string& what, const std::string& value) {
    if (!value.empty()) said += (said.empty() ? "" : ", ") + what + value;
  };
  if (kind == "start" || kind == "resume" || kind == "went_back") {
    add("from ", event.text("from"));
    add("ranks ", event.text("ranks"));
    add("first host ", event.text("host"));
  } else if (kind == "save" || kind == "save_failed") {
    add("", event.text("kind"));
    add("seconds ", event.text("seconds"));
  } else if (kind == "evaluation") {
    add("documents ", event.text("documents"));
  } else if (kind == "rule") {
    add("", event.text("action"));
    add("", event.text("rule"));
  } else if (kind == "end") {
    add("exit code ", event.text("exit_code"));
    add("", event.text("cause"));
  } else if (kind == "stop") {
    add("signal ", event.text("signal"));
    add("limit ", event.text("limit"));
    add("rule ", event.text("rule"));
  }
  add("", event.text("text"));
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
  for_each_event(file, 0, [&](const Event& event) {
    const bool failed = event.kind == "end" && event.integer("exit_code") != 0;
    events.push_back({.kind = event.kind,
                      .step = event.step,
                      .attempt = event.attempt,
                      .time = event.time,
                      .text = shortened(describe(event)),
                      .is_shown = failed || kShownEvents.contains(event.kind),
                      .ranks = event.integer("ranks")});
  });
  return events;
}

}  // namespace athanor::inline report
