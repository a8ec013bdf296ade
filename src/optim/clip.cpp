#include "optim/clip.h"

#include <algorithm>

namespace athanor::inline optim {

namespace {

constexpr double kEpsilon = 1e-6;  // as torch's clip_grad_norm_, so that a zero gradient divides nothing by zero

bool clips(const OptimizerConfig& config, bool warming_up) {
  return config.max_grad_norm != 0 && !(config.clip_after_warmup && warming_up);
}

}  // namespace

double clip_scale(const OptimizerConfig& config, double grad_norm, bool warming_up) {
  if (!clips(config, warming_up)) return 1;
  return std::min(1.0, config.max_grad_norm / (grad_norm + kEpsilon));
}

Tensor clip_scale(const OptimizerConfig& config, const Tensor& grad_norm, bool warming_up) {
  if (!clips(config, warming_up)) return at::ones_like(grad_norm);
  return at::full_like(grad_norm, config.max_grad_norm).div(grad_norm + kEpsilon).clamp_max(1);
}

}  // namespace athanor::inline optim
