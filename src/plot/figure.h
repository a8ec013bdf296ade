#pragma once
// What a picture shows, before it is drawn on a terminal or as an SVG.

#include <string>
#include <vector>

#include "plot/axis.h"
#include "plot/curve.h"

namespace athanor::inline plot {

/// A run's curve: a line, and dots for values that only some steps have. Points are in the order of x; all are finite.
struct Curve {
  std::string name, dots_name;  ///< for the legend; dots_name only if there are dots
  std::vector<Point> line;
  std::vector<Point> faint;  ///< what the line smooths, drawn pale behind it where the picture can; may be empty
  std::vector<Point> dots;
};

/// A horizontal line, such as the entropy that a loss should fall below.
struct Level {
  std::string name;
  double y;
};

struct Figure {
  std::string y_label, x_label;
  std::vector<Curve> curves;  ///< each in its own colour
  std::vector<Level> levels;
  std::string note;    ///< one line below the picture: how curves were smoothed; may be empty
  bool log_x = false;  ///< x is a decimal logarithm; the axis shows the numbers themselves
};

struct FigureAxes {
  TickedAxis x, y;
};

/// Returns axes that hold the lines, dots and levels of `figure`, in which there is at least one point. What is faint
/// may lie outside.
FigureAxes axes_of(const Figure& figure, int most_x_ticks, int most_y_ticks);

}  // namespace athanor::inline plot
