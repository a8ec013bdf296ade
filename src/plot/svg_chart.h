#pragma once
// A figure as an element of an SVG or of a page: its axes, and what is between them.

#include <string>

#include "plot/figure.h"

namespace athanor::inline plot {

struct ChartSize {
  double width, height;
};

/// Returns an `<svg>` element of the class `chart` without a style, which has the classes of svg_parts.h; "" if the
/// figure has no points. Its data attributes tell a script where values are: data-axis (name_of the axis), data-x (low
/// and high value), data-box (left, top, width and height in its units).
/// @param x  the horizontal axis, if others share it; else that of this figure.
std::string draw_chart(const Figure& figure, XAxis axis, const ChartSize& size, const TickedAxis* x = nullptr);

}  // namespace athanor::inline plot
