#pragma once
// Names with the number of an attempt, for what is kept of it: metrics-004.jsonl, abandoned-004/.

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>

namespace athanor {

/// "metrics.jsonl" → "metrics-004.jsonl".
inline std::filesystem::path of_attempt(const std::filesystem::path& path, int64_t attempt) {
  return path.parent_path() / fmt::format("{}-{:03}{}", path.stem().string(), attempt, path.extension().string());
}

/// The attempt's number, or the next one whose name is free: attempts are counted from 1 again where events.jsonl was
/// lost, and what lies there stays.
template <class Taken>
int64_t free_number(int64_t attempt, const Taken& taken) {
  while (taken(attempt)) ++attempt;
  return attempt;
}

/// Also where a link leads nowhere.
inline bool is_taken(const std::filesystem::path& path) {
  return std::filesystem::symlink_status(path).type() != std::filesystem::file_type::not_found;
}

}  // namespace athanor
