#pragma once
// Finds steps whose loss or gradient norm is far above that of the steps before: their batch, or the optimizer's state,
// is at fault, and an update with them may cost hundreds of steps.
//
// A value is a spike if it is above the median of the last 128 steps by more than 5 times the distance from the median
// to the 95th percentile, and by at least 5% (loss) or 100% (norm) of the median. For noise with a normal distribution
// that is about 8 standard deviations. Nothing is a spike before there are 32 steps. Spikes do not enter the history.

#include <deque>
#include <filesystem>
#include <string>

#include "train/step_guard.h"

namespace athanor {

class Spikes {
 public:
  static constexpr size_t kWindow = 128, kLeast = 32;

  /// Returns the limits for the next step, means over targets; infinite as long as there are too few steps.
  StepLimits limits() const;
  /// Takes the numbers of a step that was applied and is no spike.
  void add(double loss, double grad_norm);
  /// Returns what is beyond the limits, with the numbers that they come from; "" if nothing is.
  std::string describe(double loss, double grad_norm) const;

 private:
  std::deque<double> losses_, norms_;
};

/// Returns what the metrics of a run tell of its last steps, up to `step`, as Spikes::add would have taken them: so a
/// run that is interrupted decides as one that is not. Lines that cannot be read are ignored. @throws nothing.
Spikes spikes_of_history(const std::string& metrics_lines, int64_t step);
/// Returns what spikes_of_history needs of metrics.jsonl, a few kB; "" if there is no such file.
std::string last_metrics_lines(const std::filesystem::path& metrics);

}  // namespace athanor
