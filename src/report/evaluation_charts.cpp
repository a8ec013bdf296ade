#include "report/evaluation_charts.h"

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "report/chart_points.h"

namespace athanor::inline report {
namespace {

// The steps of a run may have been lost; what the results tell of tokens counts first.
ChartPoint place_of(const RunRecord& run, const CheckpointScores& at, double value) {
  ChartPoint point = place_of_step(run.steps, at.step);
  point.step = static_cast<double>(at.step);
  if (at.tokens >= 0) point.tokens = static_cast<double>(at.tokens);
  point.value = value;
  return point;
}

std::string unit_of(const ScoreColumn& column) {
  return column.metric + (column.num_fewshot > 0 ? ", " + std::to_string(column.num_fewshot) + " examples" : "");
}

}  // namespace

std::vector<Chart> evaluation_charts(const std::vector<RunRecord>& runs, const std::map<std::string, double>& chance) {
  std::vector<RunResults> results;
  std::vector<size_t> with_results;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].evaluations.results.empty()) continue;
    results.push_back(runs[i].evaluations);
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
  std::vector<Chart> charts;
  for (size_t c = 0; c < history.columns.size(); ++c) {
    const ScoreColumn& column = history.columns[c];
    Chart chart;
    chart.id = "task-" + std::to_string(c);
    chart.title = column.task;
    chart.unit = unit_of(column);
    if (column.chance) chart.levels.push_back({"chance", *column.chance});
    for (size_t r = 0; r < history.runs.size(); ++r) {
      const size_t run = with_results[r];
      ChartSeries series{.name = runs[run].name, .ink = run, .line = {}, .faint = {}, .dots = {}, .errors = {}};
      for (const CheckpointScores& at : history.runs[r].checkpoints) {
        if (!at.scores[c] || !std::isfinite(at.scores[c]->value)) continue;
        series.line.push_back(place_of(runs[run], at, at.scores[c]->value));
        series.errors.push_back(at.scores[c]->error.value_or(0));
      }
      chart.series.push_back(std::move(series));
    }
    if (chart.has_points()) charts.push_back(std::move(chart));
  }
  return charts;
}

}  // namespace athanor::inline report
