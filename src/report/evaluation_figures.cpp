#include "report/evaluation_figures.h"

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "plot/score_figures.h"
#include "report/step_points.h"

namespace athanor::inline report {
namespace {

// The steps of a run may have been lost; what the results tell of tokens counts first.
void add_places(const StepRecord& steps, std::vector<Point>& points) {
  for (Point& point : points) {
    const Point place = place_of_step(steps, point.x);
    if (!std::isfinite(point.tokens)) point.tokens = place.tokens;
    point.seconds = place.seconds;
  }
}

}  // namespace

std::vector<Figure> evaluation_figures(const std::vector<RunRecord>& runs,
                                       const std::map<std::string, double>& chance) {
  std::vector<RunResults> results;
  std::vector<size_t> with_results;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].evaluations.results.empty()) continue;
    results.push_back({runs[i].name, runs[i].evaluations.results});
    with_results.push_back(i);
  }
  if (results.empty()) return {};
  ScoreHistory history;
  try {
    history = make_score_history(results, {.metric = "", .tasks = {}, .chance = chance});
  } catch (const ConfigError& error) {
    log::warn("{}", error.what());
    return {};
  }
  std::vector<Figure> figures = make_score_figures(history);
  for (Figure& figure : figures) {
    for (Curve& curve : figure.curves) {
      curve.ink = with_results[curve.ink];
      add_places(runs[curve.ink].steps, curve.line);
    }
  }
  std::erase_if(figures, [](const Figure& figure) { return !figure.has_points(); });
  return figures;
}

}  // namespace athanor::inline report
