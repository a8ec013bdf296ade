#pragma once
// Decides whether an update may be applied. The decision is a function of reduced values, so every rank makes the same.

#include <cmath>
#include <string>

#include "parallel/parameters.h"

namespace athanor {

enum class Verdict {
  kApply,
  kRefuse,  ///< loss or gradient is not finite: an update would spread that into every weight
};

/// @param loss, grad_norm  of the whole batch, so that every rank has the same.
inline Verdict judge(double loss, double grad_norm) {
  return std::isfinite(loss) && std::isfinite(grad_norm) ? Verdict::kApply : Verdict::kRefuse;
}

/// Returns the name of the first parameter in forward order whose gradient is not finite in the elements that this rank
/// owns, or "" if there is none. Sends nothing.
std::string first_non_finite_gradient(const ParameterStore& parameters);

}  // namespace athanor
