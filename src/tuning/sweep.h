#pragma once
// What `athanor lr-find` runs: a range test for each optimizer, and grids of rates for models of several widths.

#include <string>
#include <vector>

#include "tuning/best_rate.h"
#include "tuning/rate_range.h"
#include "tuning/short_run.h"

namespace athanor::inline tuning {

/// Returns the number of steps of a sweep, or of a run of a grid, unless the user chooses it: a tenth of the run's,
/// from 100 to 1,000.
int64_t usual_sweep_steps(const RunConfig& config);

/// Returns the configuration of a range test: a short run without warm-up or decay. Gradients are clipped and weights
/// decay as configured (clip_after_warmup clips from the first step, as there is no warm-up).
RunConfig sweep_config(const RunConfig& config, int64_t steps);

/// Returns the configuration of a run of a grid: a short run whose schedule reaches `lr`, and falls by the same factor
/// as before. The rates of groups keep their ratios to that of the run, as they do in a range test.
RunConfig grid_config(const RunConfig& config, int64_t steps, double lr);

struct OptimizerSweep {
  std::string optimizer;
  std::vector<RangePoint> points;
  RangeResult result;
};

/// Makes a range test with each of runs.configs(), from the same weights and with the same batches. Collective.
std::vector<OptimizerSweep> sweep_rates(const ShortRuns& runs, const RateRange& range);

struct WidthGrid {
  int64_t width = 0;
  std::vector<RateLosses> grid;  ///< in increasing order of the rates
  BestRate best;                 ///< best.lr is 0 if every rate diverged
};

/// Trains a model for each of runs.configs() (those of grid_config) at each rate, and as many as four further rates
/// where the best one is at an edge. A rate is judged by the mean loss of the last tenth of its steps. Collective.
/// @param rates  at least two, in increasing order.
std::vector<WidthGrid> try_widths(const ShortRuns& runs, const std::vector<double>& rates);

}  // namespace athanor::inline tuning
