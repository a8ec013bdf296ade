#pragma once
// Tells whether something that is done at an interval of steps is due.

#include <cstdint>

namespace athanor::inline config {

/// Returns whether something that is done every `interval` steps is due at step `step`, counted from 1. Nothing is due
/// if the interval is 0.
inline bool is_due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

}  // namespace athanor::inline config
