#pragma once
// The factor that clips gradients.

#include "config/run_config.h"
#include "ops/tensor.h"

namespace athanor {

/// Returns the factor by which gradients are multiplied: min(1, max_grad_norm / (grad_norm + 1e-6)). It is 1 if
/// max_grad_norm is 0, or if clip_after_warmup is set and `step` is one of the warm-up steps.
/// @param grad_norm  norm over the whole model, before clipping; finite.
/// @param step       number of the update in its training phase, from 1.
double clip_scale(const OptimizerConfig& config, double grad_norm, int64_t step);
/// The same from a norm on a device: fp64, one element, there.
Tensor clip_scale(const OptimizerConfig& config, const Tensor& grad_norm, int64_t step);

}  // namespace athanor
