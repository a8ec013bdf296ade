#pragma once
// Pictures of pipelines over time: what ranks ran, or what a schedule's play says that they would.

#include <string>

#include "arch/schedule.h"

namespace athanor {

struct TimelinePicture {
  std::string title;
  /// What the axis counts: seconds as milliseconds, or forwards of a stage.
  enum class Unit { kMilliseconds, kForwards } unit = Unit::kMilliseconds;
};

/// An SVG: a row for each rank, a box with its microbatch for each action, later chunks darker; gaps are bubbles.
std::string draw_timeline(const Timeline& timeline, const TimelinePicture& picture);

/// "1f1b, 4 ranks, 8 microbatches: bubble 27.3%": of stages of equal cost.
std::string schedule_title(const Schedule& schedule);
/// "1f1b, 4 ranks, 8 microbatches: bubble 30.1%, of these stages 28.9%, of equal ones 27.3%": what was measured, what
/// the schedule's play says of stages that take what these took on average, and of stages of equal cost.
std::string timeline_title(const Schedule& schedule, const Timeline& timeline);

}  // namespace athanor
