#pragma once
// Whether an update may be applied. The answer is a function of reduced values, so every rank gives the same.

#include <cmath>
#include <string>

#include "parallel/parameters.h"

namespace athanor {

enum class Verdict {
  kApply,
  kRefuse,  ///< loss or gradient is not finite: an update would spread it into every weight
};

inline Verdict judge(double loss, double grad_norm) {
  return std::isfinite(loss) && std::isfinite(grad_norm) ? Verdict::kApply : Verdict::kRefuse;
}

/// The first parameter in forward order with a gradient that is not finite, or "" (then it is the loss).
std::string first_non_finite_gradient(const ParameterStore& parameters);

}  // namespace athanor
