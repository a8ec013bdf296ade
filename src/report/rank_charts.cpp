#include "report/rank_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "plot/curve.h"
#include "report/chart_points.h"

namespace athanor::inline report {
namespace {

// The names of kRankParts, as those of the first rank's time are called.
constexpr std::array<const char*, kRankParts.size()> kShownParts{"waiting for data",          "forward: compute",
                                                                 "forward: communication",    "backward: compute",
                                                                 "backward: communication",   "optimizer: compute",
                                                                 "optimizer: communication",  "saving",
                                                                 "validation and evaluation", "rest"};
constexpr size_t kMostColumns = 60, kMostColumnsOfLines = 300;

ChartPoint place_at(const RunRecord& run, double step, double value) {
  ChartPoint point = place_of_step(run.steps, static_cast<int64_t>(step));
  point.step = step;
  point.value = value;
  return point;
}

// Means over about equally many records for each column.
HeatMap map_of(const RunRecord& run, bool of_comm) {
  const auto& times = run.ranks.times;
  HeatMap map{.id = of_comm ? "rank-waits" : "rank-compute",
              .title = of_comm ? "Waiting for other ranks, by rank" : "Computation by rank",
              .unit = "seconds a step",
              .row_name = "rank",
              .columns = {},
              .values = {}};
  const size_t columns = std::min(kMostColumns, times.size());
  map.values.assign(times.back().num_ranks(), std::vector<double>(columns));
  for (size_t column = 0; column < columns; ++column) {
    const size_t begin = column * times.size() / columns, end = (column + 1) * times.size() / columns;
    map.columns.push_back(place_at(run, times[end - 1].step, 0));
    for (size_t rank = 0; rank < map.values.size(); ++rank) {
      double sum = 0;
      for (size_t i = begin; i < end; ++i) sum += times[i].sum_of(rank, of_comm);
      map.values[rank][column] = sum / static_cast<double>(end - begin);
    }
  }
  map.scale = {0, map.range().second};
  return map;
}

Chart chart_of(const RunRecord& run, bool of_comm) {
  Chart chart;
  chart.id = of_comm ? "ranks-waits" : "ranks-compute";
  chart.title = of_comm ? "Waiting for other ranks" : "Computation of the ranks";
  chart.unit = "seconds a step";
  const auto& last = of_comm ? run.ranks.extremes.back().comm : run.ranks.extremes.back().compute;
  chart.note = fmt::format("At the end, rank {} has the least and rank {} the most.", last.least_rank, last.most_rank);
  const char* names[] = {"least", "mean", "most"};
  for (size_t i = 0; i < std::size(names); ++i) {
    ChartSeries series;
    series.name = names[i];
    series.ink = i;
    std::vector<Point> points;
    for (const RankExtremesAt& at : run.ranks.extremes) {
      const auto& of = of_comm ? at.comm : at.compute;
      points.push_back({at.step, i == 0 ? of.least : i == 1 ? of.mean : of.most});
    }
    for (const Point& point : thin(points, kMostColumnsOfLines)) series.line.push_back(place_at(run, point.x, point.y));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace

std::vector<HeatMap> rank_maps(const RunRecord& run) {
  if (run.ranks.times.empty()) return {};
  return {map_of(run, false), map_of(run, true)};
}

std::vector<Chart> rank_charts(const RunRecord& run) {
  if (run.ranks.extremes.empty()) return {};
  return {chart_of(run, false), chart_of(run, true)};
}

std::vector<std::vector<std::string>> rank_rows(const RunRecord& run) {
  const auto& times = run.ranks.times;
  if (times.empty()) return {};
  std::vector<std::vector<std::string>> rows{{"rank"}};
  for (const char* name : kShownParts) rows[0].emplace_back(name);
  rows[0].insert(rows[0].end(), {"all compute", "all communication"});
  for (size_t rank = 0; rank < times.back().num_ranks(); ++rank) {
    auto& row = rows.emplace_back(1, std::to_string(rank));
    const auto add_mean = [&](const auto& seconds_of) {
      double sum = 0;
      for (const RankTimesAt& at : times) sum += seconds_of(at);
      const double ms = 1e3 * sum / static_cast<double>(times.size());
      row.push_back(fmt::format(std::abs(ms) < 1e7 ? fmt::runtime("{:.1f}") : fmt::runtime("{:.3g}"), ms));
    };
    for (size_t part = 0; part < kRankParts.size(); ++part)
      add_mean([&](const RankTimesAt& at) { return at.seconds[part][rank]; });
    for (const bool of_comm : {false, true}) add_mean([&](const RankTimesAt& at) { return at.sum_of(rank, of_comm); });
  }
  return rows;
}

}  // namespace athanor::inline report
