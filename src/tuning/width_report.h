#pragma once
// What `athanor lr-find --widths` shows: the best rate of each width, and the rate at the width of the configuration.

#include <string>
#include <vector>

#include "plot/figure.h"
#include "tuning/sweep.h"

namespace athanor::inline tuning {

struct WidthReport {
  RunConfig config;   ///< whose width is the target
  int64_t steps = 0;  ///< how long each run is
  double grid_step = 2;
  std::vector<WidthGrid> widths;
};

/// Returns the widths whose best rate lies between two others of their grid.
std::vector<WidthRate> enclosed_rates(const WidthReport& report);

/// Returns a table for people, and what it means for the target.
std::string width_table(const WidthReport& report);

/// Returns the report of a command as one line of JSON (docs/lr-find.md).
std::string width_json(const WidthReport& report, const std::string& command);

/// Returns the losses over the rates, a curve for each width, with a mark at its best rate.
Figure width_figure(const WidthReport& report);

/// Returns a line for each width without an enclosed best rate, with the remedy; empty if one has it.
std::vector<std::string> width_faults(const WidthReport& report);

}  // namespace athanor::inline tuning
