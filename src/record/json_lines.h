#pragma once
// Files with a JSON object in each line, which only grow. A run may be writing them, and a process that was killed may
// have left half a line.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace athanor::inline record {

/// Calls `take` for each line of a file from byte `begin` on, without its end; for a last line without an end, too.
/// What is no file has none. @throws IoError.
void for_each_line(const std::filesystem::path& file, uint64_t begin,
                   const std::function<void(std::string_view line)>& take);
/// The same for lines that are objects; others are left out.
void for_each_object(const std::filesystem::path& file, uint64_t begin,
                     const std::function<void(nlohmann::json&& line)>& take);

/// Returns where the last `bytes` of a file begin; 0 if it is shorter or missing.
uint64_t begin_of_last(const std::filesystem::path& file, uint64_t bytes);

/// Return a member of an object; `otherwise` if it is missing or of another kind.
int64_t integer_in(const nlohmann::json& line, const char* member, int64_t otherwise = 0);
double number_in(const nlohmann::json& line, const char* member, double otherwise);

}  // namespace athanor::inline record
