#pragma once
// Where the time of each rank went, as pictures and numbers.

#include <string>
#include <vector>

#include "report/chart.h"
#include "report/run_record.h"

namespace athanor::inline report {

/// Computation and waits for other ranks, by rank over time; nothing if the run had one rank, or too many for rows.
std::vector<HeatMap> rank_maps(const RunRecord& run);
/// The same of many ranks, as lines: the least, the mean and the most.
std::vector<Chart> rank_charts(const RunRecord& run);

/// The mean of each part over the run, by rank: the parts' names and then a row for each rank, in milliseconds a step.
/// Empty if the run has no such times.
std::vector<std::vector<std::string>> rank_rows(const RunRecord& run);

}  // namespace athanor::inline report
