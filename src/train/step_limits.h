#pragma once
// What a step may have and be applied.

#include <limits>

namespace athanor::inline train {

struct StepLimits {
  double loss = std::numeric_limits<double>::infinity();  ///< mean over targets
  double grad_norm = std::numeric_limits<double>::infinity();
};

}  // namespace athanor::inline train
