#pragma once
// The history of a run over all of its attempts: events.jsonl, a file that only grows.
//
// Each line is an object with `event`, `time` (seconds since 1970), `attempt`, `step`, and the members of that event:
//   start      from nothing, or from model.from      host, process, ranks, matmul (the path of each kind of product);
//                                                    athanor (version and commit), libtorch, mpi, cpu (its paths)
//   resume     from a checkpoint                     as start, and from, moments ("fresh" or "kept"); asked
//   went_back  to an older checkpoint of this run    as resume, and abandoned: what was moved aside
//   save       something was written                 kind ("checkpoint" or "model"), path, seconds
//   save_failed                                      kind, text
//   stop       by a signal, after this step          signal
//   end        of the attempt                        exit_code, cause; rank and text if it failed
// An attempt without an end event was killed. `asked` is checkpoint.resume if it names a place inside the run's folder.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/append_file.h"

namespace athanor {

/// The facts about earlier starts that a start of a run needs.
struct RunHistory {
  bool known = false;     ///< a history exists, even if it is empty; a folder of an older version has none
  int64_t attempts = 0;   ///< number of attempts so far
  bool saved = false;     ///< the run has saved something at some time
  bool complete = false;  ///< the last attempt ended with everything done
  std::string asked;      ///< the place inside the folder that was last asked for
  bool saved_since_asked = false;
};

/// Reads the history. Ignores lines that cannot be read. @throws IoError.
RunHistory read_history(const std::filesystem::path& events);

/// Adds lines to the history. A run is never stopped for a record that cannot be written: the log warns once, and
/// nothing here throws.
class EventLog {
 public:
  EventLog(std::filesystem::path path, int64_t attempt);
  void add(const char* event, int64_t step, nlohmann::ordered_json more = nlohmann::ordered_json::object());

 private:
  std::filesystem::path path_;
  int64_t attempt_;
  bool warned_ = false;
  std::unique_ptr<AppendFile> lines_;  // null until the file could be opened
};

}  // namespace athanor
