#pragma once
// The lines of events.jsonl, which run_history.h lists. Any process may read the file while the run writes it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace athanor::inline record {

/// A line of events.jsonl. What it lacks, or has in another form than a run writes, is 0 or "".
struct Event {
  std::string kind;  ///< start, resume, went_back, save, end …
  int64_t step = 0;  ///< number of updates so far
  int64_t attempt = 0;
  double time = 0;      ///< seconds since 1970
  nlohmann::json line;  ///< all of its members

  /// Whether an attempt begins with it.
  bool is_start() const { return kind == "start" || kind == "resume" || kind == "went_back"; }
  /// Returns a member as text, a number too.
  std::string text(const char* member) const;
  int64_t integer(const char* member, int64_t otherwise = 0) const;
};

/// Calls `take` with each event of a file from byte `begin` on, in their order; a file of any length needs the memory
/// of one line. Lines that are no event are left out: a process that was killed may have left half a line. A missing
/// file has none. @throws IoError.
void for_each_event(const std::filesystem::path& file, uint64_t begin, const std::function<void(const Event&)>& take);

}  // namespace athanor::inline record
