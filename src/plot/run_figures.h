#pragma once
// Figures of runs: one for each field that is plotted, with a curve for each run.

#include <cstddef>
#include <string>
#include <vector>

#include "plot/figure.h"

namespace athanor::inline plot {

struct PlotRequest {
  std::vector<std::string> runs;               ///< run folders, or files such as RUN/metrics-003.jsonl
  std::vector<std::string> fields = {"loss"};  ///< one figure for each; that of "loss" shows validation_loss as dots
  XAxis x = XAxis::kSteps;         ///< kTime: the time that the run worked, without the time between its attempts
  size_t window = 0;               ///< number of steps that a point is the mean of; 0: usual_window() of each curve
  std::vector<Level> levels = {};  ///< in the first figure
};

/// Reads the metrics of the runs. Warns of a run that is named twice and of one that lacks a field, and leaves it out.
/// @throws ConfigError if a run is no run or has no steps, or if no run has a finite value of a field; the message
/// lists
///         the fields that there are. IoError if a file cannot be read.
std::vector<Figure> make_run_figures(const PlotRequest& request);

}  // namespace athanor::inline plot
