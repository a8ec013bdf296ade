#pragma once
// What a person sees while something takes long: one line that is redrawn on a terminal, and now and then a
// plain line where standard error is a file.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace athanor {

/// Thread-safe. `total` and what is added to it are in `unit` ("documents", "B"); bytes are shown as MiB and so on.
class ProgressBar {
 public:
  ProgressBar(std::string label, uint64_t total, std::string unit);
  ~ProgressBar();
  void add(uint64_t amount);
  /// What was done by an earlier run: it counts as done, and nothing for the rate.
  void skip(uint64_t amount);
  /// Ends the line; later calls do nothing.
  void finish();

 private:
  std::string render(double elapsed_s) const;
  void show(bool last);

  std::string label_, unit_;
  uint64_t total_, done_ = 0, skipped_ = 0;
  bool on_terminal_, finished_ = false;
  std::chrono::steady_clock::time_point start_, last_shown_;
  std::mutex mutex_;
};

}  // namespace athanor
