#pragma once
// Measures how long a part of the program takes.

#include <chrono>

namespace athanor::inline train {

/// Adds the seconds for which it lives to a sum.
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
