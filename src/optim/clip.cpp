#include "optim/clip.h"

#include <algorithm>

namespace athanor {

double clip_scale(const OptimizerConfig& config, double grad_norm, int64_t step) {
  if (config.max_grad_norm == 0 || (config.clip_after_warmup && step <= config.warmup_steps)) return 1;
  constexpr double kEpsilon = 1e-6;  // as torch's clip_grad_norm_, so that a zero gradient divides nothing by zero
  return std::min(1.0, config.max_grad_norm / (grad_norm + kEpsilon));
}

}  // namespace athanor
