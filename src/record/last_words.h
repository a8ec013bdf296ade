#pragma once
// Records in a file why an attempt ended: launchers lose exit codes, and of many ranks' messages only one shows the
// cause.

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/failure.h"

namespace athanor::inline record {

/// What a process was doing in its run.
struct RunMoment {
  std::filesystem::path run_dir = {};  ///< empty: no run had begun
  int64_t attempt = 0, step = 0;
  const char* phase = "start";  ///< RunContext::phase
};

/// Writes run_dir/log/last-words.json {cause, rank, host, step, phase, tensor, exit_code, text, attempt, time}, with
/// the missing ranks if a collective failed, and then this attempt's end into events.jsonl. Does nothing if another
/// rank of this attempt was faster, or if no run has begun. Communicates nothing and throws nothing: it is called when
/// something has failed.
/// @param rank, host  of this process.
void leave_last_words(const RunMoment& at, int rank, const std::string& host, const Failure& failure);

/// Called at a start: moves the previous attempt's last words, if there are any, to log/last-words-NNN.json, where NNN
/// is `attempt_before` or the next number that is free. @throws IoError.
void set_aside_last_words(const std::filesystem::path& run_dir, int64_t attempt_before);

}  // namespace athanor::inline record
