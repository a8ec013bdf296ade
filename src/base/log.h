#pragma once
// Log lines for people, on standard error. Output for programs (step lines, results) goes to standard output.
//
// In a job of many ranks the first rank speaks for all. The others show errors only, and each may have its own file
// for what it alone has found: call warn() for that, and warn_on_all() for what every rank finds.

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace athanor::log {

enum class Level { kDebug, kInfo, kWarn, kError };

/// Drops lines below `level`. The default is kInfo, or the value of ATHANOR_LOG (debug, info, warn, error).
void set_level(Level level);

/// Also appends every line to the file `path` (in a run's log/ folder), beginning with the latest lines (at most 1,000)
/// that were logged before the first call. A later call replaces the file by another; an empty path ends this.
void also_to_file(const std::string& path);

void line(Level level, std::string_view text);

/// Returns the rank that ATHANOR_LOG_RANK names, or nothing. @throws ConfigError if there is no such rank.
std::optional<int> shown_rank(int num_ranks);

/// Makes this process a rank whose messages are not for the terminal: it shows errors only. From its first warning on,
/// messages go to the file that a RankFile names; until there is one, they are kept.
/// @param host      of this rank, for the terminal.
/// @param is_shown  shows messages from info on as well, each with the rank and the host.
void speak_as_rank(int rank, const std::string& host, bool is_shown);

/// The file of a rank that speak_as_rank was called for. It is made, with its folder, at the first warning: thousands
/// of ranks without one make no files. Each of its lines has the time and the step. If it cannot be written, the first
/// message that is lost is shown on the terminal, and the run continues.
class RankFile {
 public:
  RankFile() = default;
  ~RankFile();
  RankFile(const RankFile&) = delete;
  RankFile& operator=(const RankFile&) = delete;

  /// Does nothing on a rank that speak_as_rank was not called for.
  /// @param step  returns the number of the present step, 0 before the first; any thread may call it until this object
  ///              ends.
  void open(std::filesystem::path path, std::function<int64_t()> step);
};

/// The level at which this process logs a warning that all ranks of a job have: the first rank warns for all of them.
Level level_on_all();

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
/// Logs a warning that all ranks have found, so that it makes no file for each of them.
template <class... Args>
void warn_on_all(fmt::format_string<Args...> format, Args&&... args) {
  line(level_on_all(), fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::kError, fmt::vformat(format, fmt::make_format_args(args...)));
}

}  // namespace athanor::log
