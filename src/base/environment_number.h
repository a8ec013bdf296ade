#pragma once
// A number in the environment.

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace athanor {

/// Returns the value of a variable that is a whole number, 0 or more, and nothing else ("8x" is none).
inline std::optional<int> number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  if (!text) return {};
  const char* end = text + std::strlen(text);
  int value = 0;
  const auto read = std::from_chars(text, end, value);
  if (read.ec != std::errc{} || read.ptr != end || value < 0) return {};
  return value;
}

}  // namespace athanor
