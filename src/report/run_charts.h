#pragma once
// The charts of a report: which numbers of a run are shown, and how.

#include <vector>

#include "report/chart.h"
#include "report/run_record.h"

namespace athanor::inline report {

/// Charts with a line for each run: loss, learning rate, gradient norm, share of changed weights, throughput, MFU,
/// memory, losses of the router. A chart that no run has numbers for is missing. The index of a run is its ink.
std::vector<Chart> charts_of_runs(const std::vector<RunRecord>& runs);

/// Where the time of a run's steps goes, as areas on one another; nothing if its steps have no times.
std::vector<Chart> time_charts(const RunRecord& run);
/// The tokens drawn from each source, if there are several.
std::vector<Chart> source_charts(const RunRecord& run);
/// The load of the busiest expert over the mean, by layer over time, if the model has experts.
std::vector<HeatMap> load_maps(const RunRecord& run);

/// Seconds of a run by what they went to; the rest is what comes between steps: validation, evaluation, saving.
struct TimeShare {
  std::string name;
  double seconds = 0;
};
std::vector<TimeShare> time_shares(const RunRecord& run);

}  // namespace athanor::inline report
