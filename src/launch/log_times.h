#pragma once
// How long a log continued after a place in it, by the times that its lines begin with.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace athanor::launch {

/// Returns the first time in the text, in seconds since 1970, if it is written as 2026-01-05 11:20:17, with T or a
/// space between; the zone is not read.
std::optional<double> time_in(std::string_view text);

/// Returns the seconds between the first time in the log at or after the byte `from`, and its last time; nothing if the
/// log has no two times there. Reads at most 64 KiB at either place.
std::optional<double> seconds_after(const std::filesystem::path& log, uint64_t from);

}  // namespace athanor::launch
