#pragma once
// Parses JSON from a file that may be damaged: every refusal is a CheckpointError that names the file, and the byte or
// key.
//
// It is stricter than the parser underneath: a key may occur only once in an object (the parser would keep the last),
// and nesting is bounded to 64 levels. Time and memory are linear in the text. For texts of many objects see
// json_records.h. In all functions `where` names the source in messages ("run/manifest.json").

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline checkpoint {

/// Parses a text.
/// @throws CheckpointError with the byte, counted from `first_byte` (the position of `text` in its file).
nlohmann::json parse_strict_json(std::string_view text, const std::string& where, uint64_t first_byte = 0);

/// Returns a text of the source for a message: on one line, and at most 100 bytes of it.
std::string shown_text(std::string_view text);

/// Returns the member `key` of `object`. @throws CheckpointError "<where>: ..." if there is none.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key, const std::string& where);

/// Return a typed member. A size is a whole number from 0 to 2^63-1. @throws CheckpointError.
std::string json_string(const nlohmann::json& object, const char* key, const std::string& where);
int64_t json_size(const nlohmann::json& object, const char* key, const std::string& where);

/// Convert a value that is at hand, with the same checks; `name` is its key in messages.
int64_t as_json_size(const nlohmann::json& value, std::string_view name, const std::string& where);
std::vector<int64_t> as_json_sizes(const nlohmann::json& value, std::string_view name, const std::string& where);

}  // namespace athanor::inline checkpoint
