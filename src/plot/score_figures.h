#pragma once
// The progression of scores over the checkpoints of runs: as small multiples, and as a table.

#include <string>

#include "plot/score_history.h"
#include "plot/small_multiples.h"

namespace athanor::inline plot {

/// What the horizontal axis shows: tokens if those of every checkpoint are known, or else steps.
enum class ScoreAxis { kTokensIfKnown, kSteps, kTokens };

/// Returns a panel for each column of `history`, with a line for each run, its standard error and chance.
/// @throws ConfigError if `axis` is kTokens, and the tokens of a checkpoint are not known.
SmallMultiples make_score_figures(const ScoreHistory& history, ScoreAxis axis);

/// Returns a table for each run: a row for each checkpoint, a column for each task, with its metric, its chance and its
/// largest standard error in the head.
/// @param most_columns  the width of the terminal: columns that do not fit follow in a further table; 0: no limit.
std::string score_table(const ScoreHistory& history, size_t most_columns);

}  // namespace athanor::inline plot
