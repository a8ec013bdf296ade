#pragma once
// What `athanor lr-find` shows of its range tests: a table, JSON, a picture.

#include <string>
#include <vector>

#include "plot/figure.h"
#include "tuning/sweep.h"

namespace athanor::inline tuning {

struct SweepReport {
  RunConfig config;  ///< that of the first sweep, with the sequence length of its data
  RateRange range;
  std::vector<OptimizerSweep> sweeps;
};

/// Returns lines for people: how the rates were tried, and a row for each optimizer.
std::string sweep_table(const SweepReport& report);

/// Returns the report of a command as one line of JSON (docs/lr-find.md). Numbers that do not exist, and losses that
/// are not finite, are null.
std::string sweep_json(const SweepReport& report, const std::string& command);

/// Returns the losses over the rates, with marks at the rate of steepest descent and the cautious one. A curve ends
/// where its loss is far above the first one.
Figure sweep_figure(const SweepReport& report);

/// Returns a line for each optimizer whose range is at fault, with the remedy.
std::vector<std::string> sweep_faults(const SweepReport& report);

/// Returns a rate with three digits, "1.25e-03"; "-" for none.
std::string rate_text(std::optional<double> lr);

}  // namespace athanor::inline tuning
