#pragma once
// What a training run's own folder tells of an attempt: the folder of a command, its last words, and its steps.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/verdict.h"

namespace athanor::launch {

/// The records of a run folder at a moment, against which later ones are compared. Files that are not there are empty.
struct RunRecords {
  std::string last_words;
  uint64_t events_bytes = 0;
  int64_t attempt = 0;  ///< that of the newest event, as the run counts them; 0: none
};
RunRecords read_records(const std::filesystem::path& run_dir);

/// Returns whether a start has passed its checks since: the run's history has grown.
bool has_begun(const std::filesystem::path& run_dir, const RunRecords& before);

/// Returns the last words if they were written since: those of an earlier attempt stay where a start is refused.
std::optional<LastWords> fresh_last_words(const std::filesystem::path& run_dir, const RunRecords& before);

/// The steps that were done since.
struct Steps {
  std::optional<int64_t> first = {}, last = {};
};
Steps steps_since(const std::filesystem::path& run_dir, const RunRecords& before);

/// Returns the greatest step that the newest lines of metrics have; nothing: there is none.
std::optional<int64_t> greatest_step(const std::filesystem::path& run_dir);

/// How a run that was not complete came to stop, by its own history.
struct StopRecord {
  bool by_limit = false;  ///< the limit of the job, or train.stop_after
  int signal = 0;         ///< 0: none
};
/// Returns the newest one since.
StopRecord stop_since(const std::filesystem::path& run_dir, const RunRecords& before);

/// Returns the exit code with which the run's history ended since; nothing if it has no end.
std::optional<int> end_code_since(const std::filesystem::path& run_dir, const RunRecords& before);

}  // namespace athanor::launch
