#pragma once
// How Python prints values: str(), repr() and json.dumps(); and how it reads numbers from text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tasks/value.h"

namespace athanor::tasks {

/// str(value): what a template prints. @throws PythonError for what is undefined, and for what prints its address.
std::string python_str(const Value& value);
/// repr(value).
std::string python_repr(const Value& value);
/// repr(number): the shortest decimal number that rounds to it.
std::string python_repr(double number);

/// The longest text that a template may make: a mistake in it has to end.
inline constexpr size_t kMaxTextBytes = size_t{1} << 25;
/// Throws PythonError if a text would be longer.
void check_text_size(size_t bytes);

struct JsonStyle {
  int indent = -1;         ///< spaces; −1: one line
  bool only_ascii = true;  ///< other characters as \uXXXX
  bool sort_keys = false;
};
/// json.dumps(value).
std::string python_json(const nlohmann::ordered_json& value, const JsonStyle& style);

/// int(text, base), which ignores spaces around the number and allows `_` between digits. None: Python would raise.
/// @throws PythonError for an integer of more than 64 bits.
std::optional<int64_t> read_int(std::string_view text, int base = 10);
/// float(text).
std::optional<double> read_float(std::string_view text);

}  // namespace athanor::tasks
