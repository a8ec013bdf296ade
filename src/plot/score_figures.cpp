#include "plot/score_figures.h"

#include <fmt/core.h>

#include "base/error.h"
#include "plot/curve.h"
#include "plot/svg_picture.h"

namespace athanor::inline plot {
namespace {

std::vector<Point> points_of(const RunScores& run, size_t column) {
  std::vector<Point> points;
  for (const CheckpointScores& at : run.checkpoints) {
    const auto& score = at.scores[column];
    if (!score || !is_drawable(score->value)) continue;
    points.push_back({.x = static_cast<double>(at.step), .y = score->value, .error = score->error.value_or(0)});
    if (at.tokens >= 0) points.back().tokens = static_cast<double>(at.tokens);
  }
  return points;
}

}  // namespace

std::vector<Figure> make_score_figures(const ScoreHistory& history) {
  std::vector<Figure> figures;
  for (size_t i = 0; i < history.columns.size(); ++i) {
    const ScoreColumn& column = history.columns[i];
    Figure& figure = figures.emplace_back(Figure{.id = fmt::format("task-{}", i), .title = column.task});
    figure.unit =
        column.num_fewshot > 0 ? fmt::format("{}, {}-shot", column.metric, column.num_fewshot) : column.metric;
    figure.shows_points = true;
    if (column.chance) figure.levels.push_back({"chance", *column.chance});
    for (const RunScores& run : history.runs)
      figure.curves.push_back({.name = run.name, .ink = figure.curves.size(), .line = thin(points_of(run, i))});
  }
  return figures;
}

std::string draw_scores(const ScoreHistory& history, ScoreAxis axis) {
  ATHANOR_CHECK(axis != ScoreAxis::kTokens || history.has_tokens(),
                "the results do not tell the tokens of every checkpoint; choose --x steps");
  std::vector<Figure> figures = make_score_figures(history);
  for (Figure& figure : figures)
    if (axis != ScoreAxis::kSteps && history.has_tokens()) figure.x_axis = XAxis::kTokens;
  return draw_small_multiples(figures,
                              history.runs.size() == 1 ? "Scores of " + history.runs[0].name : "Scores of runs",
                              "Shaded: ± 1 standard error. Dashed: the score of guessing.");
}

}  // namespace athanor::inline plot
