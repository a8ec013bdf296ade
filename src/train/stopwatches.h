#pragma once
// Stopwatches that add what they measure to a sum: of a step, and of a part of the program.

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

/// Measures how long a part of the program takes: adds the seconds for which it lives to a sum.
class SecondsInto {
 public:
  explicit SecondsInto(double& sum) : sum_(sum) {}
  ~SecondsInto() { sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  SecondsInto(const SecondsInto&) = delete;
  SecondsInto& operator=(const SecondsInto&) = delete;

 private:
  double& sum_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace athanor::inline train
