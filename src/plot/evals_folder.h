#pragma once
// Finds the results of evaluations that are on disk: in a run's evals/, in another folder, or one file.

#include <string>
#include <vector>

#include "plot/score_history.h"

namespace athanor::inline plot {

/// Reads the results in each place: a run folder, a folder of results, or a file of results. A run that is named twice
/// is read once. Files that are no results of a checkpoint, and evaluations that are not finished, are named in a
/// warning and left out.
/// @throws ConfigError if a place does not exist or has no results of a checkpoint.
std::vector<RunResults> read_evaluations(const std::vector<std::string>& places);

}  // namespace athanor::inline plot
