#pragma once
// Reads JSON texts from outside: time and memory are linear in the text, whatever it is, and no value nests deeper than
// kMaxJsonDepth. The library's own parser takes any depth, and what walks a value later (a copy, a dump, a comparison)
// would run out of stack; it also searches all members of an ordered object at each new one.

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace athanor {

/// The most lists and objects that may be open at once. Our own files have at most 6.
inline constexpr int kMaxJsonDepth = 64;

/// Why a text was not read.
struct JsonFault {
  size_t byte = 0;     ///< where it stops being JSON, counted from 1; 0 if it is JSON that is not taken
  std::string reason;  ///< in words for people
};

/// Return the value of a text as the library's parser does (of members with one name, the last counts); a discarded
/// value if the text is not JSON, nests too deep, or has a number out of range. @param fault  gets the reason, if
/// given.
nlohmann::json read_json(std::string_view text, JsonFault* fault = nullptr);
nlohmann::ordered_json read_ordered_json(std::string_view text, JsonFault* fault = nullptr);

/// Returns what is wrong with a JSON text, from the message of the JSON library, without the library's own terms.
std::string json_error_reason(std::string_view message);

/// Parses `text`. `file` is its name in messages.
/// @throws DataError with the byte, counted from 1, at which `text` stops being JSON.
nlohmann::json parse_json(std::string_view text, const std::string& file);

}  // namespace athanor
