#pragma once
// The gradient's norm over all parameters, and the factor that clips it.

#include "config/run_config.h"
#include "ops/tensor.h"

namespace athanor {

/// Euclidean norm of flat fp32 gradients; the sum runs over fixed blocks in order, whatever the threads.
double gradient_norm(const Tensor& flat_grad);

/// What gradients are multiplied by at update `step` (1-based): min(1, max_grad_norm / norm), 1 where clipping is off.
double clip_scale(const OptimizerConfig& config, double grad_norm, int64_t step);

}  // namespace athanor
