#pragma once
// Parses JSON from a file that may be damaged: every refusal is a CheckpointError that names the file, and the byte or
// key.
//
// It is stricter than the parser underneath: a key may occur only once in an object (the parser would keep the last),
// and nesting is bounded. Time and memory are linear in the text. For texts of many objects see json_records.h.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// Parses a text. `where` names the source in messages ("run/manifest.json").
/// @throws CheckpointError with the byte, counted from `first_byte` (the position of `text` in its file).
nlohmann::json parse_strict_json(std::string_view text, const std::string& where, uint64_t first_byte = 0);

/// Returns the member `key` of `object`. @throws CheckpointError "<where>: ..." if there is none.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key, const std::string& where);

/// Return a typed member. Integers must be whole and fit; sizes must not be negative. @throws CheckpointError.
std::string json_string(const nlohmann::json& object, const char* key, const std::string& where);
int64_t json_size(const nlohmann::json& object, const char* key, const std::string& where);

/// Convert a value that is at hand, with the same checks; `name` is its key in messages.
int64_t as_json_size(const nlohmann::json& value, std::string_view name, const std::string& where);
std::vector<int64_t> as_json_sizes(const nlohmann::json& value, std::string_view name, const std::string& where);

}  // namespace athanor
