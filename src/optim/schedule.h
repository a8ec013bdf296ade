#pragma once
// The learning rate of each step: a linear warm-up, then one of five schedules.

#include <cstdint>

#include "config/run_config.h"

namespace athanor {

/// Returns the learning rate of update `step` of a training phase (from 1) of `total_steps` updates; `config` is the
/// phase's. Warm-up begins with lr / warmup_steps and reaches lr at step warmup_steps. Then
///   cosine, linear  fall from lr to min_lr, which they reach at the last step;
///   wsd             keeps lr, and falls linearly to min_lr in the last decay_steps (0: a tenth of total_steps);
///   inverse_sqrt    is lr · √(max(warmup_steps, 1) / step), but at least min_lr;
///   constant        keeps lr.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t total_steps);

}  // namespace athanor
