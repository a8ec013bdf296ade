#pragma once
// The figures of a report: which numbers of a run are shown, and how.

#include <vector>

#include "plot/figure.h"
#include "report/run_record.h"

namespace athanor::inline report {

/// Figures with a line for each run: loss, learning rate, gradient norm, share of changed weights, throughput, MFU,
/// memory, losses of the router. A figure that no run has numbers for is missing. The index of a run is its ink.
std::vector<Figure> figures_of_runs(const std::vector<RunRecord>& runs);

/// Where the time of a run's steps goes, as areas on one another; nothing if its steps have no times.
std::vector<Figure> time_figures(const RunRecord& run);
/// The tokens drawn from each source, if there are several.
std::vector<Figure> source_figures(const RunRecord& run);
/// The load of the busiest expert over the mean, by layer over time, if the model has experts.
std::vector<Figure> load_maps(const RunRecord& run);

/// Seconds of a run by what they went to; the rest is what comes between steps: validation, evaluation, saving.
struct TimeShare {
  std::string name;
  double seconds = 0;
};
std::vector<TimeShare> time_shares(const RunRecord& run);

}  // namespace athanor::inline report
