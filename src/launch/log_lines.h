#pragma once
// The lines of a log of any size that may mean something: those that have a trigger word. The log is read once, front
// to back, within 2 MiB of memory.
//
// A line ends with \n or \r (a redrawn line of progress counts as several, with the same number). Escape sequences of
// terminals are removed, and of a longer line only the first 16 KiB are looked at.

#include <cstdint>
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

/// Fills up to `capacity` bytes of a log, and returns their number; 0: it has ended.
using ReadLog = std::function<size_t(char* out, size_t capacity)>;

/// What is done with a log while it is read.
class LogSink {
 public:
  virtual ~LogSink() = default;
  /// Called with each line that has a trigger word, in order.
  virtual void take(const LogLine& line) = 0;
  /// Called with each piece of the log after its lines: whole lines, about a mebibyte, with the offset of its front.
  virtual void see_piece(std::string_view piece, uint64_t offset) = 0;
};

/// @param words  must have those with which escape sequences begin, since such a sequence may lie inside any other
/// word.
LogSize read_log(const ReadLog& read, const TriggerWords& words, LogSink& sink);

/// Returns the next line of a piece, and takes it off its front.
std::string_view next_line(std::string_view& piece);

/// Removes the escape sequences of terminals (colours, positions, titles) from `line`.
std::string without_escapes(std::string_view line);

}  // namespace athanor::launch
