#pragma once
// Lines for people, on standard error. What a program reads (step lines, results) goes to standard output.

#include <fmt/core.h>

#include <string_view>

namespace athanor::log {

enum class Level { kDebug, kInfo, kWarn, kError };

/// Lines below `level` are dropped. Default: kInfo, or what ATHANOR_LOG says (debug, info, warn, error).
void set_level(Level level);

/// Also appends every line to `path` (a run's log/ folder), first those that were said until now and went into no file
/// yet; an empty path ends that.
void also_to_file(const std::string& path);

void line(Level level, std::string_view text);

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
