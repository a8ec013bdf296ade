#pragma once
// The steps of a run as people see them: one moving line on a terminal, otherwise a line every few steps.

#include <chrono>
#include <cstdint>

#include "metrics/metrics.h"

namespace athanor::inline metrics {

/// On the first rank. If standard output and standard error are a terminal, the present step stands in one line below
/// the log (log::set_status). Otherwise lines go to standard output: those of the first step of the attempt, of every
/// `interval` steps, and of the last step.
class StepLines {
 public:
  StepLines(int64_t interval, int64_t first_step, int64_t last_step);
  ~StepLines() { end(); }
  StepLines(const StepLines&) = delete;
  StepLines& operator=(const StepLines&) = delete;

  void show(const StepMetrics& metrics);
  /// Removes the moving line.
  void end();

 private:
  void print(const StepMetrics& metrics);

  int64_t interval_, first_step_, last_step_;
  bool on_terminal_, printing_ = true;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Returns "step 120/440  loss 3.2145  11,020 tokens/s  2:10 elapsed, 5:40 left".
std::string moving_line(const StepMetrics& metrics, int64_t last_step, double elapsed_s);

}  // namespace athanor::inline metrics
