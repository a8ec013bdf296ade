#include "base/thread_waits.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace athanor {
namespace {

// A wake-up costs 5 µs if a core is idle and awake, and 50 µs or more if the core itself has to be woken, as in a
// virtual machine. A busy neighbour takes time slices of 3 ms. docs/performance.md has the measurements.
constexpr double kSpin_us = 200;

void pause_once() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#else
  __asm__ volatile("" ::: "memory");
#endif
}

// Measures one turn of a spinning thread: a load and a pause, which takes 10 to 150 cycles on chips of the last ten
// years.
double measure_pause_us() {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 5, kPauses = 200;
  double best_us = 1e9;
  for (int round = 0; round < kRounds; ++round) {  // the least of several, as others may run in between
    const auto start = Clock::now();
    for (int i = 0; i < kPauses; ++i) pause_once();
    best_us = std::min(best_us, std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kPauses);
  }
  return std::max(best_us, 1e-4);
}

constexpr const char *kSpinCount = "GOMP_SPINCOUNT", *kPolicy = "OMP_WAIT_POLICY";

}  // namespace

void set_thread_waits() {
  if (std::getenv(kSpinCount) || std::getenv(kPolicy)) return;
  ::setenv(kSpinCount, std::to_string(std::lround(kSpin_us / measure_pause_us())).c_str(), 0);
}

std::string describe_thread_waits() {
  const char *spin = std::getenv(kSpinCount), *policy = std::getenv(kPolicy);
  if (!spin) return policy ? fmt::format("wait as set by {}={}", kPolicy, policy) : "wait as OpenMP does by default";
  const std::string said = fmt::format("{}={}", kSpinCount, spin);
  double turns = 0;
  const char* end = spin + std::strlen(spin);
  if (const auto [rest, error] = std::from_chars(spin, end, turns); error != std::errc{} || rest != end)
    return "wait as set by " + said;  // "infinite", or a number with a suffix
  return fmt::format("spin for about {:.2g} ms ({}), then sleep", turns * measure_pause_us() * 1e-3, said);
}

}  // namespace athanor
