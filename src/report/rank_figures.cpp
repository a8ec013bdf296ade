#include "report/rank_figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "plot/curve.h"
#include "report/step_points.h"

namespace athanor::inline report {
namespace {

// The names of kRankParts, as those of the first rank's time are called.
constexpr std::array<const char*, kRankParts.size()> kShownParts{"waiting for data",          "forward: compute",
                                                                 "forward: communication",    "backward: compute",
                                                                 "backward: communication",   "optimizer: compute",
                                                                 "optimizer: communication",  "saving",
                                                                 "validation and evaluation", "rest"};

// Means over about equally many records for each column.
Figure map_of(const RunRecord& run, bool of_comm) {
  const auto& times = run.ranks.times;
  Figure figure{.id = of_comm ? "rank-waits" : "rank-compute",
                .title = of_comm ? "Waiting for other ranks, by rank" : "Computation by rank",
                .unit = "seconds a step",
                .is_wide = true};
  HeatMap& map = figure.heat_map;
  map.row_name = "rank";
  const size_t columns = std::min(kMostBins, times.size());
  map.values.assign(times.back().num_ranks(), std::vector<double>(columns));
  for (size_t column = 0; column < columns; ++column) {
    const size_t begin = column * times.size() / columns, end = (column + 1) * times.size() / columns;
    map.columns.push_back(place_of_step(run.steps, times[end - 1].step));
    for (size_t rank = 0; rank < map.values.size(); ++rank) {
      double sum = 0;
      for (size_t i = begin; i < end; ++i) sum += times[i].sum_of(rank, of_comm);
      map.values[rank][column] = sum / static_cast<double>(end - begin);
    }
  }
  map.scale = {0, map.extent().high};
  return figure;
}

Figure lines_of(const RunRecord& run, bool of_comm) {
  const auto& last = of_comm ? run.ranks.extremes.back().comm : run.ranks.extremes.back().compute;
  Figure figure{.id = of_comm ? "ranks-waits" : "ranks-compute",
                .title = of_comm ? "Waiting for other ranks" : "Computation of the ranks",
                .unit = "seconds a step",
                .notes = {fmt::format("At the end, rank {} has the least and rank {} the most.", last.least_rank,
                                      last.most_rank)}};
  using Of = RankExtremesAt::Of;
  for (const auto& [name, value] : {std::pair("least", &Of::least), {"mean", &Of::mean}, {"most", &Of::most}}) {
    std::vector<Point> points;
    for (const RankExtremesAt& at : run.ranks.extremes)
      points.push_back(place_of_step(run.steps, at.step, (of_comm ? at.comm : at.compute).*value));
    figure.curves.push_back({.name = name, .ink = figure.curves.size(), .line = thin(points)});
  }
  return figure;
}

}  // namespace

std::vector<Figure> rank_figures(const RunRecord& run) {
  std::vector<Figure> figures;
  for (const bool of_comm : {false, true}) {
    if (!run.ranks.times.empty()) figures.push_back(map_of(run, of_comm));
    if (!run.ranks.extremes.empty()) figures.push_back(lines_of(run, of_comm));
  }
  return figures;
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
