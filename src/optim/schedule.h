#pragma once
// The learning rate of each step: a linear warm-up, then one of five schedules.

#include <cstdint>

#include "config/run_config.h"

namespace athanor {

/// Returns the learning rate of update `step` (1-based) of `total_steps`. Warm-up reaches lr at step warmup_steps;
/// every schedule except "constant" and "inverse_sqrt" reaches min_lr at the last step.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t total_steps);

}  // namespace athanor
