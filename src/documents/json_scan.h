#pragma once
// The fast path for usual rows: simdjson reads a JSON object and finds the one string that is needed.

#include <optional>
#include <string>
#include <string_view>

namespace athanor::inline documents {

/// Returns the string that the object `json` has under `field` (field_path.h), if `json` is valid JSON and has the
/// field exactly once. Returns none in every other case, and for a few unusual rows that are valid (deep nesting,
/// integers of more than 64 bits): find_json_text (json_text.h) then reads the row again and reports the error, if
/// there is one.
std::optional<std::string> scan_json_text(std::string_view json, std::string_view field);

}  // namespace athanor::inline documents
