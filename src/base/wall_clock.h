#pragma once
// The time of day as files of a run record it, and the time that has passed since a moment.

#include <chrono>

namespace athanor {

/// Returns the seconds since 1970 (UTC), cut to whole milliseconds: these are enough to compare a step with a line of
/// the log, and keep the figure short.
inline double unix_time_s() {
  using namespace std::chrono;
  return static_cast<double>(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count()) / 1000;
}

/// Returns the seconds that have passed since a moment, by a clock that is never set back.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace athanor
