#pragma once
// How threads of OpenMP wait for each other: a short while awake, then asleep.
//
// Threads that spin for long are as fast as any on an idle machine and ruinous on a busy one: they burn the time slices
// that the thread they wait for needs. Threads that sleep at once pay a wake-up at each of the thousands of meetings of
// a step. Between them lies a spin of about as long as a wake-up costs (docs/performance.md has the measurements).

#include <string>

namespace athanor {

/// Tells GNU OpenMP to spin for a fifth of a millisecond before a thread sleeps. It reads its environment once, when it
/// is loaded: so this is to be called before the first library that needs it. What the environment says already
/// (OMP_WAIT_POLICY, GOMP_SPINCOUNT) stays.
void set_thread_waits();

/// For a line of the log, after "waiting threads": "spin for about 0.2 ms (GOMP_SPINCOUNT=18000), then sleep", or what
/// else the environment says.
std::string describe_thread_waits();

}  // namespace athanor
