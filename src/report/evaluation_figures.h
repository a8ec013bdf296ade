#pragma once
// Scores on tasks over the steps of runs.

#include <map>
#include <string>
#include <vector>

#include "plot/figure.h"
#include "report/run_record.h"

namespace athanor::inline report {

/// Returns a figure for each task or group (plot/score_figures.h). The index of a run is its ink.
/// @param chance  the scores of guessing, of tasks whose results do not tell.
std::vector<Figure> evaluation_figures(const std::vector<RunRecord>& runs, const std::map<std::string, double>& chance);

}  // namespace athanor::inline report
