#pragma once
// What happens at an interval of steps.

#include <cstdint>

namespace athanor::inline config {

/// Returns whether what happens every `interval` steps happens at step `step`, from 1; never if the interval is 0.
inline bool is_due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

}  // namespace athanor::inline config
