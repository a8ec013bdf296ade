#pragma once
// Checks whole numbers on a command line.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

namespace athanor::inline cli {

/// Refuses text that a conversion to an unsigned number would wrap around or cut: a minus sign, or more than 19 digits.
/// CLI11 applies an option's last-added transformation first. So add this one last: then it sees the text before other
/// transformations change it.
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

/// Refuses a whole number of more than 18 digits, which CLI11 before 2.4 would cut to the largest one of 64 bits.
inline CLI::Validator fits_in_64_bits() {
  return CLI::Validator(
      [](std::string& text) {
        constexpr size_t kMostDigits = 18;  // 10^18 - 1 is below 2^63
        const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
        const bool is_number = text.size() > sign && text.find_first_not_of("0123456789", sign) == std::string::npos;
        return is_number && text.size() - sign > kMostDigits ? fmt::format("{} is too large", text) : std::string();
      },
      "");
}

}  // namespace athanor::inline cli
