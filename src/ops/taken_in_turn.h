#pragma once
// A loop over pieces whose costs differ: a thread that has finished one takes the next.

#include <algorithm>
#include <atomic>

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns the number of threads that for_each_in_turn uses: at most one for each piece.
inline int64_t num_slots(int64_t count) { return std::min<int64_t>(num_threads(), count); }

struct NoGuard {};

/// Calls f(i, slot) for each piece i < count, on every thread and in any order. `slot` < num_slots(count) is the number
/// of the thread, for scratch memory. Each thread holds a `Guard` while it works.
template <class Guard = NoGuard, class F>
void for_each_in_turn(int64_t count, F f) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, num_slots(count), 1, [&](int64_t slot, int64_t) {
    [[maybe_unused]] const Guard guard;
    for (int64_t i = next++; i < count; i = next++) f(i, slot);
  });
}

}  // namespace athanor::ops
