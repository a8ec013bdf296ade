#include "report/chart.h"

#include <algorithm>
#include <cmath>

namespace athanor::inline report {
namespace {

template <class Visit>
bool every_point(const Chart& chart, Visit visit) {
  return std::ranges::all_of(chart.series, [&](const ChartSeries& series) {
    return std::ranges::all_of(series.line, visit) && std::ranges::all_of(series.faint, visit) &&
           std::ranges::all_of(series.dots, visit);
  });
}

}  // namespace

double ChartPoint::at(ChartAxis axis) const {
  switch (axis) {
    case ChartAxis::kTokens: return tokens;
    case ChartAxis::kSteps: return step;
    case ChartAxis::kTime: return seconds;
  }
  return step;
}

std::pair<double, double> HeatMap::range() const {
  std::pair<double, double> range{INFINITY, -INFINITY};
  for (const auto& row : values) {
    for (const double value : row) {
      if (!std::isfinite(value)) continue;
      range = {std::min(range.first, value), std::max(range.second, value)};
    }
  }
  return range;
}

bool Chart::has_points() const {
  return std::ranges::any_of(series, [](const ChartSeries& s) { return !s.line.empty() || !s.dots.empty(); });
}

bool Chart::has(ChartAxis axis) const {
  return every_point(*this, [&](const ChartPoint& point) { return std::isfinite(point.at(axis)); });
}

}  // namespace athanor::inline report
