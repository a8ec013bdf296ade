#pragma once
// Pictures of pipelines over time: the actions that ranks computed, or those of a simulated schedule.

#include <string>

#include "layout/schedule.h"

namespace athanor::inline layout {

struct TimelinePicture {
  std::string title;
  /// The unit of the time axis: milliseconds (of a timeline in seconds), or forwards of a stage.
  enum class Unit { kMilliseconds, kForwards } unit = Unit::kMilliseconds;
};

/// Returns an SVG with a row for each rank and a box with the microbatch's number for each action. Later chunks are
/// darker; gaps are bubbles.
std::string draw_timeline(const Timeline& timeline, const TimelinePicture& picture);

/// Returns a title with the simulated bubble for stages of equal cost: "1f1b, 4 ranks, 8 microbatches: bubble 27.3%".
std::string schedule_title(const Schedule& schedule);
/// Returns a title with three bubbles: "1f1b, 4 ranks, 8 microbatches: bubble 30.1%, of these stages 28.9%, of equal
/// ones 27.3%". The first was measured, the second is simulated with the stages' mean measured costs, and the third is
/// simulated with stages of equal cost.
std::string timeline_title(const Schedule& schedule, const Timeline& timeline);

}  // namespace athanor::inline layout
