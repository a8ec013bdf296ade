#pragma once
// The lines of a log of any size that may mean something: those that have a trigger word. The log is read once, front
// to back, within 2 MiB of memory.
//
// A line ends with \n or \r (a redrawn line of progress counts as several, with the same number). Escape sequences of
// terminals are removed, and of a longer line only the first 16 KiB are looked at.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace athanor::launch {

class TriggerWords;

inline constexpr size_t kLongestLine = 16 << 10;

struct LogLine {
  uint64_t number = 0;    ///< from 1
  uint64_t offset = 0;    ///< its first byte in the log
  std::string_view text;  ///< without escape sequences; valid during the call
};

struct LogSize {
  uint64_t bytes = 0, lines = 0;
};

/// Calls `take` with each line that has a word of `words`, in order.
/// @param words  must have those with which escape sequences begin, since such a sequence may lie inside any other
/// word.
/// @throws IoError if the file cannot be read.
LogSize read_log(const std::filesystem::path& path, const TriggerWords& words,
                 const std::function<void(const LogLine&)>& take);

/// Removes the escape sequences of terminals (colours, positions, titles) from `line`.
std::string without_escapes(std::string_view line);

}  // namespace athanor::launch
