#pragma once
// Scores on tasks over the steps of runs.

#include <map>
#include <string>
#include <vector>

#include "report/chart.h"
#include "report/run_record.h"

namespace athanor::inline report {

/// Returns a chart for each task or group (plot/score_history.h), with the standard error as a band, and chance.
/// @param chance  the scores of guessing, of tasks whose results do not tell.
std::vector<Chart> evaluation_charts(const std::vector<RunRecord>& runs, const std::map<std::string, double>& chance);

}  // namespace athanor::inline report
