#pragma once
// The factor that clips gradients.

#include "config/run_config.h"

namespace athanor {

/// Returns the factor by which gradients are multiplied at update `step` (1-based): min(1, max_grad_norm / (norm +
/// 1e-6)), or 1 if clipping is off, or off during warm-up and `step` belongs to it.
double clip_scale(const OptimizerConfig& config, double grad_norm, int64_t step);

}  // namespace athanor
