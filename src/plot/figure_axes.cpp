#include "plot/figure_axes.h"

#include <algorithm>

namespace athanor::inline plot {
namespace {

// What is always shown of the values.
Extent firm_extent(const Figure& figure) {
  Extent extent;
  if (figure.is_stacked) extent.add(0);
  for (const Level& level : figure.levels) extent.add(level.y);
  for (const Curve& curve : figure.curves) {
    for (const auto* points : {&curve.line, &curve.dots}) {
      for (const Point& point : *points) {
        extent.add(point.y - point.error);
        extent.add(point.y + point.error);
      }
    }
  }
  return extent;
}

// Returns the extent of each curve's faint values without this share of them at each end.
Extent faint_extent(const Figure& figure, double share_cut) {
  Extent extent;
  for (const Curve& curve : figure.curves) {
    if (curve.faint.empty()) continue;
    std::vector<double> values;
    for (const Point& point : curve.faint) values.push_back(point.y);
    std::ranges::sort(values);
    const auto cut = static_cast<size_t>(share_cut * static_cast<double>(values.size()));
    extent.add(values[cut]);
    extent.add(values[values.size() - 1 - cut]);
  }
  return extent;
}

Extent y_extent(const Figure& figure) {
  constexpr double kShareFarOff = 0.01, kMostStretch = 2.5;  // by which values that are far off may shrink the rest
  Extent extent = firm_extent(figure);
  if (!figure.holds_faint) return extent;
  extent.add(faint_extent(figure, kShareFarOff));
  Extent whole = extent;
  whole.add(faint_extent(figure, 0));
  return whole.high - whole.low <= kMostStretch * (extent.high - extent.low) ? whole : extent;
}

TickedAxis row_axis(size_t num_rows) {
  constexpr size_t kMostNames = 16;
  TickedAxis axis{0, static_cast<double>(num_rows), {}};
  const size_t stride = num_rows <= kMostNames ? 1 : (num_rows + 11) / 12;
  for (size_t row = 0; row < num_rows; row += stride)
    axis.ticks.push_back({axis.high - static_cast<double>(row) - 0.5, std::to_string(row)});
  std::ranges::reverse(axis.ticks);
  return axis;
}

}  // namespace

TickedAxis x_axis_of(std::span<const Figure> figures, XAxis axis, int most_ticks) {
  Extent extent;
  for (const Figure& figure : figures) {
    if (figure.is_heat_map()) extent.add(0);
    for (const Point& point : figure.heat_map.columns) extent.add(point.at(axis));
    for (const Curve& curve : figure.curves)
      for (const auto* points : {&curve.line, &curve.dots})
        for (const Point& point : *points) extent.add(point.at(axis));
  }
  if (axis == XAxis::kTime) return time_axis(extent.low, extent.high, most_ticks);
  const bool is_log = axis == XAxis::kSteps && figures[0].log_x;
  TickedAxis ticked = (is_log ? logarithmic_axis : horizontal_axis)(extent.low, extent.high, most_ticks);
  ticked.label = axis == XAxis::kTokens ? "tokens" : figures[0].x_label;
  return ticked;
}

TickedAxis y_axis_of(const Figure& figure, int most_ticks) {
  if (figure.is_heat_map()) return row_axis(figure.heat_map.values.size());
  const Extent extent = y_extent(figure);
  return vertical_axis(extent.low, extent.high, most_ticks);
}

std::optional<Extent> values_outside(const Figure& figure) {
  const Extent shown = y_extent(figure), faint = faint_extent(figure, 0);
  if (!(faint.low < shown.low || faint.high > shown.high)) return std::nullopt;
  return faint;
}

}  // namespace athanor::inline plot
