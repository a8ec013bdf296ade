#pragma once
// The way in which OpenMP threads wait for each other: they spin for a short time, then sleep.
//
// Long spinning is fastest on an idle machine and ruinous on a busy one, because spinning threads use up the time
// slices that the thread they wait for needs. Threads that sleep at once pay a wake-up at each of the thousands of
// synchronisations of a step. A spin of about the cost of a wake-up is the compromise (docs/performance.md has the
// measurements).

#include <string>

namespace athanor {

/// Makes threads of GNU OpenMP spin for 0.2 ms before they sleep. OpenMP reads its environment once, when it is loaded,
/// so call this before the first library that needs it is loaded. If OMP_WAIT_POLICY or GOMP_SPINCOUNT is set already,
/// this changes nothing.
void set_thread_waits();

/// Returns text for a log line that begins with "waiting threads": "spin for about 0.2 ms (GOMP_SPINCOUNT=18000), then
/// sleep", or a description of another setting in the environment.
std::string describe_thread_waits();

}  // namespace athanor
