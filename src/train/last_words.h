#pragma once
// Records in a file why a run ended: launchers lose exit codes, and among many ranks' messages the one that counts.

#include "base/failure.h"
#include "train/run_context.h"

namespace athanor {

/// Writes run_dir/log/last-words.json {cause, rank, host, step, phase, tensor, exit_code, text, attempt, time}, unless
/// another rank of this attempt was faster, and then this attempt's end into events.jsonl. Does nothing if no run has
/// begun. Communicates nothing and throws nothing: it is called when something has failed.
void leave_last_words(const RunContext& at, int rank, const std::string& host, const Failure& failure);

/// Called at a start: moves the previous attempt's last words to log/last-words-NNN.json. @throws IoError.
void set_aside_last_words(const std::filesystem::path& run_dir, int64_t attempt_before);

}  // namespace athanor
