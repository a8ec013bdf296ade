#pragma once
// The fast path for usual rows: reads the one string that is needed in one pass over a JSON object.

#include <optional>
#include <string>
#include <string_view>

namespace athanor {

/// Returns the string that the object `json` (valid UTF-8) has under `field`, if `json` is valid JSON and has the field
/// exactly once. Returns none in every other case, and in a few unusual ones (keys with escapes, deep nesting, huge
/// numbers): find_json_text then reads the row again and reports the error, if there is one.
std::optional<std::string> scan_json_text(std::string_view json, std::string_view field);

}  // namespace athanor
