#pragma once
// From the steps of a run to the points of a chart: smoothed and thinned, so that a page of a long run stays small.

#include <cstddef>
#include <string>
#include <vector>

#include "report/chart.h"
#include "report/run_record.h"

namespace athanor::inline report {

/// Where a step is.
ChartPoint place_of(const StepRecord& steps, size_t index, double value);
/// Where step `step` is: the last of the record that is not after it, or its beginning.
ChartPoint place_of_step(const StepRecord& steps, int64_t step);

/// Fills line and faint of a series with the finite values: the line is a mean over one step in 50 around each point,
/// from 200 steps on (usual_window in plot/curve.h), and what is faint keeps the extremes of every step.
/// @return how many steps a point of the line is the mean of.
size_t add_smoothed(const StepRecord& steps, const std::vector<double>& values, ChartSeries& series);

/// Returns the finite values, thinned with their extremes.
std::vector<ChartPoint> thinned(const StepRecord& steps, const std::vector<double>& values);

/// The steps in bins of about the same number.
struct StepBins {
  std::vector<size_t> ends;  ///< the first step after each bin
};
StepBins make_bins(const StepRecord& steps, size_t most);
/// Returns the mean of the finite values in each bin; NaN if there is none.
std::vector<double> means(const StepBins& bins, const std::vector<double>& values);

}  // namespace athanor::inline report
