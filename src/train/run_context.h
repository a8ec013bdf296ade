#pragma once
// What a process is doing in its run: a failure's message gives it in addition to the rank, and it determines where the
// process may write its last words (last_words.h).

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace athanor {

struct RunContext {
  std::atomic<int64_t> step{0};             ///< the present step; 0 before the first
  std::atomic<const char*> phase{"start"};  ///< start, data, step, validate or save
  /// The folder of a run that has begun: every check of its start has passed and its folder may change. The thread that
  /// trains sets it, and this is also the thread that fails.
  std::filesystem::path run_dir;
  int64_t attempt = 0;

  bool in_run() const { return !run_dir.empty(); }
};

}  // namespace athanor
