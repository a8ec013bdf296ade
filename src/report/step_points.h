#pragma once
// From the steps of a run to the points of a figure.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plot/figure.h"
#include "report/run_record.h"

namespace athanor::inline report {

/// Returns a value at the place of the step of that index.
Point place_of(const StepRecord& steps, size_t index, double y);
/// Returns a value at `step`, whose tokens and time are those of the last step of the record that is not after it, or
/// of the run's beginning.
Point place_of_step(const StepRecord& steps, double step, double y = 0);

/// Returns the values that can be drawn.
std::vector<Point> points_of(const StepRecord& steps, const std::vector<double>& values);

inline constexpr size_t kMostBins = 60;  ///< that areas and heat maps have along the horizontal axis

/// The steps in bins of about the same number.
struct StepBins {
  std::vector<size_t> ends;  ///< the first step after each bin
};
StepBins make_bins(const StepRecord& steps, size_t most);
/// Returns the mean of the finite values in each bin; NaN if there is none.
std::vector<double> means(const StepBins& bins, const std::vector<double>& values);

}  // namespace athanor::inline report
