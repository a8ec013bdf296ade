#pragma once
// What a picture shows, before it is drawn on a terminal, as an SVG or on a page.

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plot/axis.h"

namespace athanor::inline plot {

/// What the horizontal axis shows. kSteps is Point::x, which is something else in figures that are not about steps.
enum class XAxis { kTokens, kSteps, kTime };

/// Returns "tokens", "steps" or "time".
const char* name_of(XAxis axis);

/// A point of a curve. It knows where it is on every horizontal axis, so that a reader can change the axis.
struct Point {
  double x = 0, y = 0;        ///< x: the step, or what Figure::x_label says
  double tokens = INFINITY;   ///< seen up to there; not finite: not known
  double seconds = INFINITY;  ///< worked up to there, without the time between attempts; not finite: not known
  double error = 0;           ///< the standard error of y; 0: none

  double at(XAxis axis) const;
  bool operator==(const Point&) const = default;
};

/// Returns whether a value can be drawn: it is finite, and no axis that holds it overflows.
inline bool is_drawable(double value) { return std::abs(value) < 1e300; }

/// A curve: a line, and dots for values that only some steps have. Points are in the order of x, and can be drawn.
struct Curve {
  std::string name, dots_name = {};  ///< for the legend; dots_name only if there are dots
  size_t ink = 0;                    ///< the index of its colour: that of the run, or of the part
  std::vector<Point> line = {};      ///< where its points have errors, a band shows y ± error
  std::vector<Point> faint = {};     ///< what the line smooths, drawn pale behind it where the picture can
  std::vector<Point> dots = {};
  size_t window = 1;  ///< the number of steps that a point of the line is the mean of

  bool has_points() const { return !line.empty() || !dots.empty(); }
};

/// A horizontal line, such as the entropy that a loss should fall below.
struct Level {
  std::string name;
  double y;
};

/// An event on the time line.
struct Mark {
  Point at;
  size_t ink = 0;
  std::string text;
};

/// Numbers in rows and columns, as colours: loads of experts by layer over time.
struct HeatMap {
  std::string row_name;                     ///< "layer"
  std::vector<Point> columns;               ///< where each column ends; their y means nothing
  std::vector<std::vector<double>> values;  ///< for each row and column; NaN: none
  std::optional<Extent> scale = {};         ///< values of the palest and the darkest colour; none: extent()

  Extent extent() const;
};

/// Curves, or a heat map.
struct Figure {
  std::string id = {};           ///< a name for links and files: "loss"
  std::string title, unit = {};  ///< "Loss"; what the values are: "nats a token"
  std::string x_label = "step";  ///< what Point::x is
  XAxis x_axis = XAxis::kSteps;  ///< what is shown where a reader has no choice
  bool log_x = false;            ///< Point::x is a decimal logarithm; the axis shows the numbers themselves
  bool is_wide = false;          ///< on a page, as wide as the page
  bool is_stacked = false;       ///< each line is the top of an area on those before it, which have the same x
  bool shows_points = false;     ///< the points of lines are dots, too, unless they touch
  bool holds_faint = true;       ///< the vertical axis holds what is faint, except a few values that are far off
  std::vector<Curve> curves = {};
  std::vector<Level> levels = {};
  std::vector<Mark> marks = {};
  HeatMap heat_map = {};
  std::vector<std::string> notes = {};  ///< sentences below it

  std::string heading() const { return unit.empty() ? title : title + ", " + unit; }
  bool is_heat_map() const { return !heat_map.values.empty(); }
  bool has_points() const;
  /// Returns whether the place on an axis is known of every point.
  bool has(XAxis axis) const;
};

/// Returns `figure` with the sums that its areas reach in place of their own values, if it is stacked.
Figure stacked_up(Figure figure);

}  // namespace athanor::inline plot
