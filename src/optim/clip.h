#pragma once
// The factor that clips gradients.

#include "config/run_config.h"

namespace athanor {

/// What gradients are multiplied by at update `step` (1-based): min(1, max_grad_norm / norm), 1 where clipping is off.
double clip_scale(const OptimizerConfig& config, double grad_norm, int64_t step);

}  // namespace athanor
