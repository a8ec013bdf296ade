// Prints the nanoseconds that one change of a rank's record on the board takes, and one count of a collective that has
// been started. bench/watch/run compiles and calls it.

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>

#include "board/publisher.h"

namespace {

using athanor::board::clock_ns;

// The shortest of several trials: other programs only make one longer.
template <class Change>
double least_ns(Change change) {
  constexpr int kTrials = 7, kCalls = 1'000'000;
  double least = std::numeric_limits<double>::infinity();
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto begin = clock_ns();
    for (int i = 0; i < kCalls; ++i) change(i);
    least = std::min(least, static_cast<double>(clock_ns() - begin) / kCalls);
  }
  return least;
}

}  // namespace

int main() {
  const auto record = std::make_unique<athanor::board::Record>();
  const athanor::board::Publisher board(record.get());
  const double change = least_ns([&](int i) { board.set_phase(athanor::board::Phase::kForward, i); });
  if (record->live.microbatch != 999'999 || record->live.sequence != 2 * 7'000'000) return 1;
  const double start = least_ns([&](int i) { board.start_collective(3, i); });
  if (record->started[3] != 999'999) return 1;
  std::printf("%.2f %.2f\n", change, start);
}
