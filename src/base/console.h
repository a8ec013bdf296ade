#pragma once
// Progress of long work, for people, on standard error: one line that is redrawn on a terminal, or else a plain line at
// most every ten seconds.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace athanor {

/// Work that usually ends sooner shows no progress.
inline constexpr double kLongWork_s = 1;

/// A thread-safe progress line. `total` and all amounts are in `unit` ("documents", "B"); bytes are shown as MiB etc.
class ProgressBar {
 public:
  /// @param after_s  nothing is shown of work that ends within this time.
  ProgressBar(std::string label, uint64_t total, std::string unit, double after_s = 0);
  ~ProgressBar();
  void add(uint64_t amount);
  /// Adds an amount that an earlier process has done: it counts as done, but not for the rate.
  void skip(uint64_t amount);
  /// Draws and ends the line on a terminal; prints nothing elsewhere. A second call does nothing. No add() may follow.
  void finish();

 private:
  std::string render(double elapsed_s) const;
  void show(bool last);

  std::string label_, unit_;
  uint64_t total_, done_ = 0, skipped_ = 0;
  double after_s_;
  bool on_terminal_, finished_ = false;
  std::chrono::steady_clock::time_point start_, last_shown_;
  std::mutex mutex_;
};

}  // namespace athanor
