#pragma once
// The usual row read fast: one pass over a JSON object for the one string that is wanted.

#include <optional>
#include <string>
#include <string_view>

namespace athanor {

/// The string that the object `json` (valid UTF-8) has under `field`, where all is as it should be: valid JSON, the
/// field there once. None in every other case, and in a few unusual ones (keys with escapes, deep nesting, huge
/// numbers): find_json_text then reads it once more and says what is wrong, if anything is.
std::optional<std::string> scan_json_text(std::string_view json, std::string_view field);

}  // namespace athanor
