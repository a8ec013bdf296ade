#pragma once
// Numbers on a command line that have no sign.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

namespace athanor {

/// Refuses what a conversion to an unsigned number would wrap around or cut: a sign, and more than 19 digits. The
/// transformation that an option is given last is the one that sees its text first.
inline CLI::Validator without_sign() {
  return CLI::Validator(
      [](std::string& text) {
        constexpr size_t kMostDigits = 19;  // 10^19 - 1 is below 2^64
        const bool is_number = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
        if (text.starts_with('-')) return fmt::format("expected a number without a sign, got {}", text);
        if (is_number && text.size() > kMostDigits) return fmt::format("{} is too large", text);
        return std::string();
      },
      "");
}

}  // namespace athanor
