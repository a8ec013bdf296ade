#pragma once
// What a training run's own folder tells of an attempt: the folder of a command, its last words, and its steps.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/verdict.h"

namespace athanor::launch {

/// Returns the run folder of `athanor train CONFIG --set …`; nothing for another command, or if its configuration is
/// refused, which its ranks will tell. @param own_program  a path that also means `athanor`.
std::optional<std::filesystem::path> run_folder_of(const std::vector<std::string>& command,
                                                   const std::string& own_program);

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

/// Returns the name of the signal by which the run was stopped since, "SIGTERM"; "" if it was not.
std::string stop_signal_since(const std::filesystem::path& run_dir, const RunRecords& before);

/// Returns the exit code with which the run's history ended since; nothing if it has no end.
std::optional<int> end_code_since(const std::filesystem::path& run_dir, const RunRecords& before);

}  // namespace athanor::launch
