#include "plot/figure.h"

#include <algorithm>
#include <cmath>

namespace athanor::inline plot {

FigureAxes axes_of(const Figure& figure, int most_x_ticks, int most_y_ticks) {
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  const auto hold_y = [&](double y) {
    y_low = std::min(y_low, y);
    y_high = std::max(y_high, y);
  };
  for (const auto& curve : figure.curves) {
    for (const auto* points : {&curve.line, &curve.dots}) {
      for (const auto& point : *points) {
        x_low = std::min(x_low, point.x);
        x_high = std::max(x_high, point.x);
        hold_y(point.y);
      }
    }
  }
  for (const auto& level : figure.levels) hold_y(level.y);
  return {figure.log_x ? logarithmic_axis(x_low, x_high, most_x_ticks) : horizontal_axis(x_low, x_high, most_x_ticks),
          vertical_axis(y_low, y_high, most_y_ticks)};
}

}  // namespace athanor::inline plot
