#pragma once
// Why a run ended, in a file: launchers lose exit codes, and of many ranks' messages the one that counts.

#include "base/failure.h"
#include "train/whereabouts.h"

namespace athanor {

/// Writes run_dir/log/last-words.json {cause, rank, host, step, phase, tensor, exit_code, text, attempt, time}, unless
/// another rank of this attempt was faster, and then this attempt's end into events.jsonl. Does nothing where no run
/// has begun. Nothing is communicated and nothing thrown: it is called when something has failed.
void leave_last_words(const Whereabouts& at, int rank, const std::string& host, const Failure& failure);

/// At a start: what the attempt before has left goes aside, to log/last-words-NNN.json. @throws IoError.
void set_aside_last_words(const std::filesystem::path& run_dir, int64_t attempt_before);

}  // namespace athanor
