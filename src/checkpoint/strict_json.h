#pragma once
// JSON from a file that may be damaged: every refusal is a CheckpointError that names the file, and the byte or key.
//
// Stricter than the parser underneath: a key may stand only once in an object (the parser would keep the last), and
// nesting is bounded. Time and memory are linear in the text. For texts of many objects see json_records.h.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// `where` names the source in messages ("run/manifest.json").
/// @throws CheckpointError with the byte, counted from `first_byte` (where `text` starts in its file).
nlohmann::json parse_strict_json(std::string_view text, const std::string& where, uint64_t first_byte = 0);

/// The member `key` of `object`, or a CheckpointError "<where>: ...".
const nlohmann::json& json_member(const nlohmann::json& object, const char* key, const std::string& where);

/// Typed members. Integers must be whole and fit; sizes must not be negative.
std::string json_string(const nlohmann::json& object, const char* key, const std::string& where);
int64_t json_size(const nlohmann::json& object, const char* key, const std::string& where);
std::vector<int64_t> json_sizes(const nlohmann::json& object, const char* key, const std::string& where);

/// The same for a value that is at hand; `name` is its key in messages.
int64_t as_json_size(const nlohmann::json& value, std::string_view name, const std::string& where);
std::vector<int64_t> as_json_sizes(const nlohmann::json& value, std::string_view name, const std::string& where);

}  // namespace athanor
