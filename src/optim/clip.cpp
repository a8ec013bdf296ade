#include "optim/clip.h"

#include <algorithm>

namespace athanor {

namespace {

constexpr double kEpsilon = 1e-6;  // as torch's clip_grad_norm_, so that a zero gradient divides nothing by zero

bool clips(const OptimizerConfig& config, int64_t step) {
  return config.max_grad_norm != 0 && !(config.clip_after_warmup && step <= config.warmup_steps);
}

}  // namespace

double clip_scale(const OptimizerConfig& config, double grad_norm, int64_t step) {
  if (!clips(config, step)) return 1;
  return std::min(1.0, config.max_grad_norm / (grad_norm + kEpsilon));
}

Tensor clip_scale(const OptimizerConfig& config, const Tensor& grad_norm, int64_t step) {
  if (!clips(config, step)) return at::ones_like(grad_norm);
  return at::full_like(grad_norm, config.max_grad_norm).div(grad_norm + kEpsilon).clamp_max(1);
}

}  // namespace athanor
