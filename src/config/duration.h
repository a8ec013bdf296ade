#pragma once
// Lengths of time as people write them.

#include <optional>
#include <string_view>

namespace athanor::inline config {

/// Returns the seconds of "90s", "15m", "11h30m", "2d", "1h30m15s" or "0": whole numbers, each unit at most once, from
/// the largest to the smallest. Returns nothing for other texts, and above a thousand days.
std::optional<double> parse_duration(std::string_view text);

}  // namespace athanor::inline config
