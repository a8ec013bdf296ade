#include "report/chart_points.h"

#include <algorithm>
#include <cmath>

#include "plot/curve.h"

namespace athanor::inline report {
namespace {

constexpr size_t kColumns = 300, kMostPoints = 400;
constexpr double kLargest = 1e300;  // beyond this the length of an axis could overflow

// Points whose x is the index of the step.
std::vector<Point> by_index(const std::vector<double>& values) {
  std::vector<Point> points;
  for (size_t i = 0; i < values.size(); ++i)
    if (std::abs(values[i]) < kLargest) points.push_back({static_cast<double>(i), values[i]});
  return points;
}

std::vector<ChartPoint> placed(const StepRecord& steps, const std::vector<Point>& points) {
  std::vector<ChartPoint> out;
  out.reserve(points.size());
  for (const Point& point : points) out.push_back(place_of(steps, static_cast<size_t>(point.x), point.y));
  return out;
}

}  // namespace

ChartPoint place_of(const StepRecord& steps, size_t index, double value) {
  return {steps.steps[index], steps.tokens[index], steps.seconds[index], value};
}

ChartPoint place_of_step(const StepRecord& steps, int64_t step) {
  const auto after = std::ranges::upper_bound(steps.steps, static_cast<double>(step));
  if (after == steps.steps.begin()) return {static_cast<double>(step), 0, 0, 0};
  return place_of(steps, static_cast<size_t>(after - steps.steps.begin()) - 1, 0);
}

size_t add_smoothed(const StepRecord& steps, const std::vector<double>& values, ChartSeries& series) {
  const std::vector<Point> points = by_index(values);
  const size_t window = usual_window(points.size());
  if (window == 1) {
    series.line = placed(steps, thin(points, kColumns));
  } else {
    series.line = placed(steps, smooth(points, window, kMostPoints));
    series.faint = placed(steps, thin(points, kColumns));
  }
  return window;
}

std::vector<ChartPoint> thinned(const StepRecord& steps, const std::vector<double>& values) {
  return placed(steps, thin(by_index(values), kColumns));
}

StepBins make_bins(const StepRecord& steps, size_t most) {
  StepBins bins;
  const size_t count = std::min(most, steps.size());
  for (size_t i = 0; i < count; ++i) bins.ends.push_back((i + 1) * steps.size() / count);
  return bins;
}

std::vector<double> means(const StepBins& bins, const std::vector<double>& values) {
  std::vector<double> result;
  size_t begin = 0;
  for (const size_t end : bins.ends) {
    double sum = 0;
    size_t count = 0;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++count;
    }
    result.push_back(count == 0 ? NAN : sum / static_cast<double>(count));
    begin = end;
  }
  return result;
}

}  // namespace athanor::inline report
