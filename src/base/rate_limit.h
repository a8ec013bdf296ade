#pragma once
// Keeps work below a rate, such as the bytes that a background task may write each second.

#include <chrono>
#include <cstdint>
#include <mutex>

namespace athanor {

class RateLimit {
 public:
  /// @param per_second  0: no limit.
  explicit RateLimit(double per_second) : per_second_(per_second) {}

  /// Counts `amount` as done, and sleeps as long as more than the limit was done. At most what a second allows is saved
  /// up while nothing is done. Any thread may call it.
  void take(double amount);

 private:
  using Clock = std::chrono::steady_clock;

  const double per_second_;
  std::mutex mutex_;
  Clock::time_point free_at_{};  ///< when the limit allows what has been taken
};

}  // namespace athanor
