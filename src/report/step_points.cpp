#include "report/step_points.h"

#include <algorithm>
#include <cmath>

namespace athanor::inline report {

Point place_of(const StepRecord& steps, size_t index, double y) {
  return {steps.steps[index], y, steps.tokens[index], steps.seconds[index]};
}

Point place_of_step(const StepRecord& steps, double step, double y) {
  const auto after = std::ranges::upper_bound(steps.steps, step);
  if (after == steps.steps.begin()) return {step, y, 0, 0};
  Point point = place_of(steps, static_cast<size_t>(after - steps.steps.begin()) - 1, y);
  point.x = step;
  return point;
}

std::vector<Point> points_of(const StepRecord& steps, const std::vector<double>& values) {
  std::vector<Point> points;
  for (size_t i = 0; i < values.size(); ++i)
    if (is_drawable(values[i])) points.push_back(place_of(steps, i, values[i]));
  return points;
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
