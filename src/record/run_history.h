#pragma once
// The history of a run over all of its attempts: events.jsonl, a file that only grows.
//
// Each line is an object with `event`, `time` (seconds since 1970), `attempt`, `step` (number of updates so far), and
// the members of that event:
//   start      from nothing, or from model.from      host, process, ranks, matmul (the path of each kind of product),
//                                                    athanor (version and commit), libtorch, mpi, cpu (its paths),
//                                                    device (kind, name, memory_bytes; not on a CPU), changes (of the
//                                                    configuration, since the attempt before)
//   resume     from a checkpoint                     as start, and from, moments ("fresh" or "kept"), asked
//   went_back  to an older checkpoint of this run    as resume, and abandoned: what was moved aside
//   not_finite a newer checkpoint was put aside      path (its new name), tensor, element (its index), value; comes
//                                                    before the event of the checkpoint that was taken
//   save       something was written                 kind ("checkpoint" or "model"), path, seconds; and
//                                                    stopped_seconds, for which the run was stopped, if it was written
//                                                    in the background: then lines of later steps may be before this
//   save_failed                                      kind, text
//   skip       a batch whose step was not finite      text (what was found), drawn: the position in the data before it
//   roll_back  the same, and the next attempt continues from a checkpoint: as skip
//   spike      a step's loss or norm was far above       text (what was found)
//   level      the loss or norm has risen and stays high   of, before, now, lowest, lowest_step, text
//   lr_jump    where the run continues               before, now, text
//   stuck      the gradient is zero, or the loss stays    text
//   experts    dead or overloaded ones               text
//   frozen     parameters that do not change         text, parameters
//   save_skipped  a checkpoint that was due          kind, writing: the step of the one that was still being written
//   evaluation of the model (run_gate.h)             tokens, documents, seconds, path, settings, results
//   rule       of [eval] that holds                  rule, action ("warn" or "stop"), text, value, limit
//   stop       after this step                       signal, limit (of time) or rule
//   end        of the attempt                        exit_code, cause; rank and text if it failed
// An attempt without an end event was killed. `asked` is checkpoint.resume if it names a place inside the run's folder
// and is followed. Starts also have `branch`: the attempt in which this branch of the run began. mpi, changes, asked
// and abandoned are left out if there is nothing to record.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "base/append_file.h"

namespace athanor::inline record {

/// The facts about earlier starts that a start of a run needs.
struct RunHistory {
  bool known = false;     ///< a history exists, even if it is empty; a folder of an older version has none
  int64_t attempts = 0;   ///< number of the last attempt
  bool saved = false;     ///< the run has saved something at some time
  bool complete = false;  ///< the last event is an end with exit code 0
  std::string asked;      ///< the value of `asked` in the last event that has it; "" if none has
  bool saved_since_asked = false;
  int64_t branch = 1;  ///< the attempt in which the present branch of the run began; 1 if none is recorded
};

/// Reads the history; it is not `known` if there is no such file. Ignores lines that cannot be read. @throws IoError.
RunHistory read_history(const std::filesystem::path& events);

/// Adds lines to the history. A run is never stopped for a record that cannot be written: the log warns once, and
/// nothing here throws. Any thread may add.
class EventLog {
 public:
  /// @param attempt  number that every line gets.
  EventLog(std::filesystem::path path, int64_t attempt);
  /// @param more  the members of that event.
  void add(const char* event, int64_t step, nlohmann::ordered_json more = nlohmann::ordered_json::object());

 private:
  std::filesystem::path path_;
  int64_t attempt_;
  std::mutex mutex_;  // guards what follows
  bool warned_ = false;
  std::unique_ptr<AppendFile> lines_;  // null until the file could be opened
};

}  // namespace athanor::inline record
