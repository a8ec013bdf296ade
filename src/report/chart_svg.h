#pragma once
// Draws a chart as SVG elements, for one horizontal axis.

#include <optional>
#include <string>
#include <utility>

#include "report/chart.h"

namespace athanor::inline report {

struct ChartSize {
  double width, height;
};
inline constexpr ChartSize kNarrow{420, 250}, kWide{1160, 360};

/// Returns an `<svg>` element without a style: the page's style has the classes of plot/svg_parts.h. Its
/// data attributes tell a script where values are: data-axis, data-x and data-y (low and high value), data-box (left,
/// top, width and height in its units).
std::string draw_chart(const Chart& chart, ChartAxis axis, const ChartSize& size);
/// Returns the least and the largest value of what is faint, if some of it is outside of the picture.
std::optional<std::pair<double, double>> values_outside(const Chart& chart);
std::string draw_heat_map(const HeatMap& map, ChartAxis axis, const ChartSize& size);

/// Returns a whole file with title, unit and legend, over tokens where they are known, or else over steps.
std::string chart_file(const Chart& chart);
std::string heat_map_file(const HeatMap& map);

/// Returns how an axis is called: "tokens", "steps", "hours of training".
std::string axis_name(ChartAxis axis);
/// Returns a value with the digits that tell it from its neighbours: "4.143", "2.5M" for tokens, "1:12:05" for time.
std::string place_text(ChartAxis axis, double value);

}  // namespace athanor::inline report
