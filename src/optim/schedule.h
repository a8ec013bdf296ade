#pragma once
// The learning rate of each step: a linear warm-up, then one of five schedules. They count optimizer steps, or tokens.

#include <cstdint>

#include "config/run_config.h"

namespace athanor::inline optim {

/// How far a schedule is with the update that is made: its number in the schedule, from 1, and the tokens that the run
/// will have seen after it.
struct SchedulePoint {
  int64_t step = 0;
  int64_t tokens = 0;
};

/// Returns the learning rate of an update of a training phase; `config` is the phase's. The schedule is as long as
/// schedule_tokens, or if that is 0 as schedule_steps, or if that is 0, too, as `phase_steps`, the updates of the
/// phase. With schedule_tokens it counts tokens, and warmup and decay below are warmup_tokens and decay_tokens,
/// otherwise warmup_steps and decay_steps. Warm-up begins with lr / warmup (in steps) and reaches lr at its last step.
/// Then
///   cosine, linear  fall from lr to min_lr, which they reach at the end of the schedule;
///   wsd             keeps lr, and falls linearly to min_lr over the last `decay` (0: a tenth of the schedule);
///   inverse_sqrt    is lr · √(max(warmup, 1) / at), but at least min_lr;
///   constant        keeps lr.
/// After the end of the schedule, cosine, linear and wsd keep min_lr.
double learning_rate(const OptimizerConfig& config, SchedulePoint at, int64_t phase_steps);

/// Returns true for the updates of the warm-up, its last one included.
bool is_warming_up(const OptimizerConfig& config, SchedulePoint at);

}  // namespace athanor::inline optim
