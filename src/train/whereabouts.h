#pragma once
// Where a process of a job is: what a failure's message says beside the rank, and where it may leave its last words.

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace athanor {

struct Whereabouts {
  std::atomic<int64_t> step{0};             ///< underway; 0 before the first
  std::atomic<const char*> phase{"start"};  ///< start, data, step, validate or save
  /// Of a run that has begun: every check of its start has passed and its folder may change. Set by the thread that
  /// trains, which is the one that fails.
  std::filesystem::path run_dir;
  int64_t attempt = 0;

  bool in_run() const { return !run_dir.empty(); }
};

}  // namespace athanor
