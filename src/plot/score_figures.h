#pragma once
// The progression of scores over the checkpoints of runs: as figures, and as a table.

#include <string>
#include <vector>

#include "plot/figure.h"
#include "plot/score_history.h"

namespace athanor::inline plot {

/// What the horizontal axis shows: tokens if those of every checkpoint are known, or else steps.
enum class ScoreAxis { kTokensIfKnown, kSteps, kTokens };

/// Returns a figure for each column of `history`, with a curve for each run, its standard error and chance. The index
/// of a run is its ink.
std::vector<Figure> make_score_figures(const ScoreHistory& history);

/// Returns an SVG with these figures as small multiples.
/// @throws ConfigError if `axis` is kTokens, and the tokens of a checkpoint are not known.
std::string draw_scores(const ScoreHistory& history, ScoreAxis axis);

/// Returns a table for each run: a row for each checkpoint, a column for each task, with its metric, its chance and its
/// largest standard error in the head.
/// @param most_columns  the width of the terminal: columns that do not fit follow in a further table; 0: no limit.
std::string score_table(const ScoreHistory& history, size_t most_columns);

}  // namespace athanor::inline plot
