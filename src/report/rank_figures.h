#pragma once
// Where the time of each rank went, as pictures and numbers.

#include <string>
#include <vector>

#include "plot/figure.h"
#include "report/run_record.h"

namespace athanor::inline report {

/// Returns computation and waits for other ranks: heat maps by rank over time, and of many ranks lines, which are the
/// least, the mean and the most. Nothing if the run had one rank.
std::vector<Figure> rank_figures(const RunRecord& run);

/// The mean of each part over the run, by rank: the parts' names and then a row for each rank, in milliseconds a step.
/// Empty if the run has no such times.
std::vector<std::vector<std::string>> rank_rows(const RunRecord& run);

}  // namespace athanor::inline report
