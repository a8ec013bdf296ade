#pragma once
// What rounding did to the update of each parameter in one step.

#include <string>
#include <vector>

namespace athanor::inline train {

/// Shares are of the elements of one parameter, whichever ranks own them; the experts of a stack count together.
/// An element has an update if its gradient (with LAMB and Muon its direction) is not zero.
struct ParameterUpdate {
  std::string name;
  /// The share of the elements with an update whose fp32 master is the same after it: the update is lost.
  double lost_share = 0;
  /// The share of the elements with an update whose weight, as forward reads it in bf16, is the same after it. Their
  /// masters may have moved. 0 in fp32.
  double still_share = 0;
  /// How many updates of this size move a bf16 weight by one value, in the mean over the elements with an update;
  /// infinite if none moves a master. 0 in fp32, and if there is no update.
  double updates_per_move = 0;
  /// The share of the elements whose first moment is a normal fp32 number that have a second moment (exp_avg_sq) which
  /// is zero or subnormal: the square of the gradient underflowed.
  double underflow_share = 0;
  double not_finite = 0;  ///< values of masters and per-element state that are infinite or NaN
  /// With Muon: ‖X‖ / √(Σ min(rows, columns)) of the orthogonalized matrices, in Frobenius's norm: 1 if all singular
  /// values are 1. 0 with other optimizers.
  double orthogonality = 0;
};

/// The parameters that one of these numbers is largest for, from the largest on.
struct LargestOf {
  std::string parameter;
  double value = 0;
};

/// What a step tells of all parameters: a line does not grow with their number.
struct UpdateMetrics {
  static constexpr size_t kMostListed = 4;
  std::vector<LargestOf> lost, still, underflow, not_finite, orthogonality;
};

}  // namespace athanor::inline train
