#include "plot/figure.h"

#include <algorithm>

namespace athanor::inline plot {

const char* name_of(XAxis axis) { return axis == XAxis::kTokens ? "tokens" : axis == XAxis::kSteps ? "steps" : "time"; }

double Point::at(XAxis axis) const { return axis == XAxis::kTokens ? tokens : axis == XAxis::kSteps ? x : seconds; }

Extent HeatMap::extent() const {
  Extent extent;
  for (const auto& row : values)
    for (const double value : row) extent.add(value);
  return extent;
}

bool Figure::has_points() const {
  return is_heat_map() ? !heat_map.extent().is_empty() : std::ranges::any_of(curves, &Curve::has_points);
}

bool Figure::has(XAxis axis) const {
  const auto all_known = [axis](const std::vector<Point>& points) {
    return std::ranges::all_of(points, [axis](const Point& point) { return std::isfinite(point.at(axis)); });
  };
  return all_known(heat_map.columns) && std::ranges::all_of(curves, [&](const Curve& curve) {
           return all_known(curve.line) && all_known(curve.faint) && all_known(curve.dots);
         });
}

Figure stacked_up(Figure figure) {
  for (size_t i = 1; figure.is_stacked && i < figure.curves.size(); ++i)
    for (size_t j = 0; j < figure.curves[i].line.size(); ++j)
      figure.curves[i].line[j].y += figure.curves[i - 1].line[j].y;
  return figure;
}

}  // namespace athanor::inline plot
