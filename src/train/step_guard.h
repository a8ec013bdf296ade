#pragma once
// Decides whether an update may be applied. The decision is a function of reduced values, so every rank makes the same.

#include <cmath>
#include <limits>
#include <string>

#include "parallel/parameters.h"

namespace athanor::inline train {

/// The largest numbers with which a step is still applied.
struct StepLimits {
  double loss = std::numeric_limits<double>::infinity();  ///< mean over targets
  double grad_norm = std::numeric_limits<double>::infinity();
};

enum class Verdict {
  kApply,
  kRefuse,  ///< loss or gradient is not finite: an update would spread that into every weight
  kSpike,   ///< loss or gradient norm is beyond the limits
};

/// @param loss, grad_norm  of the whole batch, so that every rank has the same; the loss is the mean over targets.
inline Verdict judge(double loss, double grad_norm, const StepLimits& limits) {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) return Verdict::kRefuse;
  return loss <= limits.loss && grad_norm <= limits.grad_norm ? Verdict::kApply : Verdict::kSpike;
}

/// Returns the name of the first parameter in forward order whose gradient is not finite in the elements that this rank
/// owns, or "" if there is none. Sends nothing; waits once for a device.
std::string first_non_finite_gradient(const ParameterStore& parameters);
/// The same of the weights that forward reads, in all elements that this rank holds.
std::string first_non_finite_weight(const ParameterStore& parameters);

}  // namespace athanor::inline train
