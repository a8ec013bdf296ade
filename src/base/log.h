#pragma once
// Log lines for people, on standard error. Output for programs (step lines, results) goes to standard output.

#include <fmt/core.h>

#include <string_view>

namespace athanor::log {

enum class Level { kDebug, kInfo, kWarn, kError };

/// Drops lines below `level`. The default is kInfo, or the value of ATHANOR_LOG (debug, info, warn, error).
void set_level(Level level);

/// Also appends every line to the file `path` (in a run's log/ folder), beginning with the latest lines (at most 1,000)
/// that were logged before the first call. A later call replaces the file by another; an empty path ends this.
void also_to_file(const std::string& path);

void line(Level level, std::string_view text);

/// Shows one line below all others where standard error is a terminal, and replaces the one of the last call; an empty
/// text removes it. Lines of the log move it down. It is cut to the width of the terminal.
void set_status(const std::string& text);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::kDebug, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::kInfo, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::kWarn, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::kError, fmt::vformat(format, fmt::make_format_args(args...)));
}

}  // namespace athanor::log
