#pragma once
// Notices that the learning rate jumps where a run continues: a schedule that is as long as the run is another one when
// train.steps is raised, and a complete run, whose rate was the lowest, continues with a high one.

#include <cstdint>
#include <optional>
#include <string>

#include "config/run_config.h"

namespace athanor::inline run {

struct LrJump {
  double before = 0, now = 0;  ///< the rates of the last update and of the next one
  std::string text;            ///< a line for people: both, what was changed, and what keeps the earlier schedule
};

/// Returns the learning rate that a run has at update `step`, from 1.
/// @param tokens  seen after it. After the last update of the configuration its schedule continues.
double planned_learning_rate(const RunConfig& run, int64_t step, int64_t tokens);

/// Compares the schedules of a run that continues after update `step`.
/// @param before, now  its configurations, with the fields that data determine.
/// @return nothing if the rate of update `step` is the same in both to a hundredth, whatever comes after it. It is also
///         nothing if the next rate is that of the last update.
std::optional<LrJump> find_lr_jump(const RunConfig& before, const RunConfig& now, int64_t step, int64_t tokens_seen);

}  // namespace athanor::inline run
