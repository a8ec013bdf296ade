#pragma once
// Finds parameters whose updates rounding spoils: updates that fp32 loses, bf16 weights that stand still, second
// moments that underflow, state that is not finite, and matrices for which Newton and Schulz's iteration diverges.

#include <array>
#include <set>
#include <string>
#include <vector>

#include "train/update_metrics.h"

namespace athanor::inline watch {

/// A kind of fault of one or more parameters.
struct UpdateFault {
  std::string kind;                     ///< "lost", "still", "underflow", "not_finite" or "diverged"
  std::vector<std::string> parameters;  ///< the worst first, at most UpdateWatch::kMostNamed
  std::string text;                     ///< one line: what is wrong, of which parameters, how much, and the remedy
};

class UpdateWatch {
 public:
  static constexpr size_t kMostNamed = 32, kNumKinds = 5;
  /// A parameter is at fault if it has more than these. docs/optimizers.md derives them.
  static constexpr double kMostLost = 0.5, kMostUnderflow = 0.5, kMostUpdatesPerMove = 10'000, kMostOrthogonality = 1.3;

  /// Takes the numbers of a step; none if it was not measured. Sends nothing.
  /// @return the kinds of which a parameter is at fault that was not in the last measured step.
  std::vector<UpdateFault> took(int64_t step, const std::vector<ParameterUpdate>& updates);

 private:
  std::array<std::set<std::string>, kNumKinds> known_;  // by kind: those at fault in the last measured step
};

/// Returns the parameters with the largest numbers, of each number those above 0.
UpdateMetrics largest_of(const std::vector<ParameterUpdate>& updates);

}  // namespace athanor::inline watch
