#pragma once
// Options that take a length of time.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

#include "config/duration.h"

namespace athanor::inline cli {

/// Turns "15m" or "1h30m" into seconds, for an option that is a number of seconds; a number stays as it is.
inline CLI::Validator duration_as_seconds() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (text.find_first_not_of("-0123456789") == std::string::npos) return "";  // the option's range is checked
        const auto seconds = parse_duration(text);
        if (!seconds) return fmt::format("expected seconds, or a duration such as 90s, 15m or 2h, got {}", text);
        text = std::to_string(std::llround(*seconds));
        return "";
      },
      "");
}

}  // namespace athanor::inline cli
