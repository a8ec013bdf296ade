#include "plot/curve.h"

#include <algorithm>

namespace athanor::inline plot {
namespace {

constexpr size_t kWindowsInCurve = 50, kFewestToSmooth = 200, kMostPoints = 400;

Point mean_around(const std::vector<Point>& points, size_t at, size_t window) {
  const size_t reach = std::min(window / 2, at), end = std::min(at + reach + 1, points.size());
  double sum = 0;
  for (size_t i = at - reach; i < end; ++i) sum += points[i].y;
  Point mean = points[at];
  mean.y = sum / static_cast<double>(end - (at - reach));
  return mean;
}

void append_column(const std::vector<Point>& points, size_t begin, size_t end, std::vector<Point>& out) {
  const auto by_y = [&](size_t a, size_t b) { return points[a].y < points[b].y; };
  size_t lowest = begin, highest = begin;
  for (size_t i = begin; i < end; ++i) {
    lowest = std::min(lowest, i, by_y);
    highest = std::max(highest, i, by_y);
  }
  size_t shown[] = {begin, lowest, highest, end - 1};
  std::ranges::sort(shown);
  for (size_t i = 0; i < std::size(shown); ++i) {
    if (i == 0 || shown[i] != shown[i - 1]) out.push_back(points[shown[i]]);
  }
}

}  // namespace

size_t usual_window(size_t num_points) { return num_points < kFewestToSmooth ? 1 : num_points / kWindowsInCurve | 1; }

std::vector<Point> smooth(const std::vector<Point>& points, size_t window, size_t most) {
  std::vector<Point> out;
  const size_t count = std::min(points.size(), most);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = count == 1 ? 0 : i * (points.size() - 1) / (count - 1);
    out.push_back(mean_around(points, at, window));
  }
  return out;
}

std::vector<Point> thin(const std::vector<Point>& points, size_t columns) {
  std::vector<Point> out;
  if (points.empty()) return out;
  const double first = points.front().x, span = points.back().x - first;
  const auto column_of = [&](const Point& point) {
    return span > 0 ? static_cast<size_t>((point.x - first) / span * static_cast<double>(columns)) : 0;
  };
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin + 1;
    while (end < points.size() && column_of(points[end]) == column_of(points[begin])) ++end;
    append_column(points, begin, end, out);
    begin = end;
  }
  return out;
}

void set_smoothed_line(const std::vector<Point>& points, size_t window, Curve& curve) {
  const size_t longest = (std::max<size_t>(points.size(), 1) - 1) | 1;
  curve.window = std::min(window == 0 ? usual_window(points.size()) : window | 1, longest);
  curve.line = curve.window == 1 ? thin(points) : smooth(points, curve.window, kMostPoints);
  if (curve.window > 1) curve.faint = thin(points);
}

}  // namespace athanor::inline plot
