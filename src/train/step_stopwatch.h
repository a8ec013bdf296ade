#pragma once
// Where the time of a step goes.

#include <chrono>

#include "parallel/mesh.h"

namespace athanor::inline train {

/// Adds the time since it was last asked to one of a step's sums, and what of it was waited for other ranks.
class StepStopwatch {
 public:
  explicit StepStopwatch(const Mesh& mesh) : mesh_(mesh) { restart(); }

  void restart() {
    last_ = Clock::now();
    waited_s_ = mesh_.waited_s();
  }
  void add_to(double& seconds, double& wait_s) {
    const auto last = last_;
    const double waited_s = waited_s_;
    restart();
    seconds += std::chrono::duration<double>(last_ - last).count();
    wait_s += waited_s_ - waited_s;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Mesh& mesh_;
  double waited_s_ = 0;
  Clock::time_point last_;
};

}  // namespace athanor::inline train
