#pragma once
// A check of numbers whose message has only the digits that are needed.

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <string>

namespace athanor::inline cli {

/// Accepts numbers from `low` to `high`; otherwise the message is "expected a number from 0 to 1, got 2".
inline CLI::Validator number_between(double low, double high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
    return fmt::format("expected a number from {:g} to {:g}, got {}", low, high, text);
  };
  return CLI::Validator(check, fmt::format("FLOAT in [{:g} - {:g}]", low, high));
}

}  // namespace athanor::inline cli
