#pragma once
// What a run prints when it is complete.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "metrics/metrics.h"

namespace athanor::inline run {

/// The sums over the steps of one attempt, on the first rank.
class RunReport {
 public:
  void add(const StepMetrics& metrics);

  /// Returns the lines that a complete run ends with: its steps, tokens, time and speed, its validation losses, where
  /// its results are, and what to type next.
  std::vector<std::string> lines(const RunConfig& config, int64_t step) const;

 private:
  struct Validation {
    int64_t step;
    double loss;
  };

  int64_t steps_ = 0, tokens_ = 0;
  double seconds_ = 0, flops_ = 0, peak_flops_ = 0;  // peak_flops_: what the peak would have made in that time
  std::optional<Validation> last_, best_;
};

}  // namespace athanor::inline run
