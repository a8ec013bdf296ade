#pragma once
// What has happened to a run, over all of its attempts: events.jsonl, to which lines are only added.
//
// Each line is an object with `event`, `time` (seconds since 1970), `attempt`, `step`, and what belongs to the event:
//   start      from nothing, or from model.from      host, process, ranks, matmul (the path of each kind of product)
//   resume     from a checkpoint                     the same and from, moments ("fresh" or "kept"); asked
//   went_back  to an older checkpoint of its own     the same and abandoned: what was moved aside
//   save       something was written                 kind ("checkpoint" or "model"), path, seconds
//   save_failed                                      kind, text
//   stop       by a signal, after this step          signal
//   end        of the attempt                        exit_code, cause; rank and text where it failed
// An attempt without an end was killed. `asked` is checkpoint.resume where it names a place inside the run's folder.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/append_file.h"

namespace athanor {

/// What a start needs to know of those before it.
struct RunHistory {
  bool known = false;     ///< there is a history, if an empty one: a folder of an older version has none
  int64_t attempts = 0;   ///< so far
  bool saved = false;     ///< anything, ever
  bool complete = false;  ///< the last attempt ended with everything done
  std::string asked;      ///< the place inside the folder that was asked for last
  bool saved_since_asked = false;
};

/// Lines that cannot be read count for nothing. @throws IoError.
RunHistory read_history(const std::filesystem::path& events);

/// Adds lines. No record is worth a run: what cannot be written is warned of once, and nothing here throws.
class EventLog {
 public:
  EventLog(std::filesystem::path path, int64_t attempt);
  void add(const char* event, int64_t step, nlohmann::ordered_json more = nlohmann::ordered_json::object());

 private:
  std::filesystem::path path_;
  int64_t attempt_;
  bool warned_ = false;
  std::unique_ptr<AppendFile> lines_;  // null until it could be opened
};

}  // namespace athanor
