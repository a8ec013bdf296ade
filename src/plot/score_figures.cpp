#include "plot/score_figures.h"

#include <fmt/core.h>

#include "base/error.h"

namespace athanor::inline plot {
namespace {

std::string subtitle_of(const ScoreColumn& column) {
  return column.num_fewshot > 0 ? fmt::format("{}, {}-shot", column.metric, column.num_fewshot) : column.metric;
}

void add_curve(const RunScores& run, size_t column, bool by_tokens, Multiple& panel) {
  Curve curve{run.name, "", {}, {}, {}};
  std::vector<double> errors;
  for (const auto& checkpoint : run.checkpoints) {
    const auto& score = checkpoint.scores[column];
    if (!score) continue;
    curve.line.push_back({static_cast<double>(by_tokens ? checkpoint.tokens : checkpoint.step), score->value});
    errors.push_back(score->error.value_or(0));
  }
  panel.figure.curves.push_back(std::move(curve));
  panel.errors.push_back(std::move(errors));
}

}  // namespace

SmallMultiples make_score_figures(const ScoreHistory& history, ScoreAxis axis) {
  ATHANOR_CHECK(axis != ScoreAxis::kTokens || history.has_tokens(),
                "the results do not tell the tokens of every checkpoint; choose --x steps");
  const bool by_tokens = axis != ScoreAxis::kSteps && history.has_tokens();
  SmallMultiples multiples{history.runs.size() == 1 ? "Scores of " + history.runs[0].name : "Scores of runs",
                           by_tokens ? "training tokens" : "step",
                           "Shaded: ± 1 standard error. Dashed: the score of guessing.",
                           {},
                           {}};
  for (const auto& run : history.runs) multiples.names.push_back(run.name);
  for (size_t i = 0; i < history.columns.size(); ++i) {
    const auto& column = history.columns[i];
    Multiple panel{column.task, subtitle_of(column), {column.task, multiples.x_label, {}, {}, ""}, {}};
    if (column.chance) panel.figure.levels.push_back({"chance", *column.chance});
    for (const auto& run : history.runs) add_curve(run, i, by_tokens, panel);
    multiples.panels.push_back(std::move(panel));
  }
  return multiples;
}

}  // namespace athanor::inline plot
