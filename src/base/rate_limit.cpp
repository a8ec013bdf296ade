#include "base/rate_limit.h"

#include <algorithm>
#include <thread>

namespace athanor {

void RateLimit::take(double amount) {
  if (per_second_ <= 0) return;
  Clock::time_point until;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    free_at_ = std::max(free_at_, now - std::chrono::seconds(1)) +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(amount / per_second_));
    until = free_at_;
  }
  std::this_thread::sleep_until(until);
}

}  // namespace athanor
