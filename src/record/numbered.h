#pragma once
// File names with the number of an attempt, for files kept from it: metrics-004.jsonl, abandoned-004/.

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>

namespace athanor::inline record {

/// "metrics.jsonl" → "metrics-004.jsonl".
inline std::filesystem::path of_attempt(const std::filesystem::path& path, int64_t attempt) {
  return path.parent_path() / fmt::format("{}-{:03}{}", path.stem().string(), attempt, path.extension().string());
}

/// Returns the first number from `attempt` on for which taken(number) is false. It may be larger than `attempt`: if
/// events.jsonl was lost, attempts are counted from 1 again, and the files that exist stay.
template <class Taken>
int64_t free_number(int64_t attempt, const Taken& taken) {
  while (taken(attempt)) ++attempt;
  return attempt;
}

/// Returns true if something has this name, even a link without a target.
inline bool is_taken(const std::filesystem::path& path) {
  return std::filesystem::symlink_status(path).type() != std::filesystem::file_type::not_found;
}

}  // namespace athanor::inline record
