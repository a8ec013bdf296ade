#pragma once
// What happened to a run, from its events.jsonl.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace athanor::inline report {

struct RunEvent {
  std::string kind;  ///< start, resume, went_back, skip, roll_back, spike, stop, end, …
  int64_t step = 0;  ///< the last step that was done
  int64_t attempt = 0;
  double time = 0;        ///< seconds since 1970; 0 if the line has none
  std::string text;       ///< what the event tells, for a table: "exit code 0, complete"
  bool is_shown = false;  ///< it has a mark on the time line: a restart, a skipped step, a rule that holds …
  int64_t ranks = 0;      ///< with which an attempt begins; 0 for other events
};

/// Returns the events of a file in their order. Lines that are no event are left out; a missing file has none.
std::vector<RunEvent> read_run_events(const std::filesystem::path& file);

}  // namespace athanor::inline report
