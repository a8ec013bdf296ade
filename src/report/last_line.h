#pragma once
// The last line of a file of JSON lines, also while it is written.

#include <filesystem>
#include <nlohmann/json.hpp>

namespace athanor {

/// Returns the last whole line that is a JSON object; an empty object if there is none among the last 4 MiB.
/// @throws IoError if the file cannot be read.
nlohmann::ordered_json last_json_line(const std::filesystem::path& file);

}  // namespace athanor
