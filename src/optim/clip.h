#pragma once
// The factor that clips gradients.

#include "config/run_config.h"
#include "ops/tensor.h"

namespace athanor::inline optim {

/// Returns the factor by which gradients are multiplied: min(1, max_grad_norm / (grad_norm + 1e-6)). It is 1 if
/// max_grad_norm is 0, or if clip_after_warmup is set and the update belongs to the warm-up.
/// @param grad_norm   norm over the whole model, before clipping; finite.
/// @param warming_up  is_warming_up (optim/schedule.h).
double clip_scale(const OptimizerConfig& config, double grad_norm, bool warming_up);
/// The same from a norm on a device: fp64, one element, there.
Tensor clip_scale(const OptimizerConfig& config, const Tensor& grad_norm, bool warming_up);

}  // namespace athanor::inline optim
