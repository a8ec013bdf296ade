#pragma once
// Curves made readable: smoothed, and thinned to what a picture can show.

#include <cstddef>
#include <vector>

#include "plot/figure.h"

namespace athanor::inline plot {

/// Returns the number of points over which a curve of `num_points` is averaged unless the user chooses it: one in 50,
/// as an odd number; 1, which smooths nothing, below 200 points.
size_t usual_window(size_t num_points);

/// Returns at most `most` points, evenly spaced, the first and the last of `points` among them. Each is the mean over
/// the `window` points (an odd number) around it. Towards the beginning, where losses fall steeply, the window shrinks
/// on both sides; at the end it loses the points that are not there yet.
std::vector<Point> smooth(const std::vector<Point>& points, size_t window, size_t most);

inline constexpr size_t kMostColumns = 300;  ///< more would not be seen, since each has four points

/// Returns points between which lines look like those between `points` in a picture `columns` wide: the first, the
/// lowest, the highest and the last of each column.
std::vector<Point> thin(const std::vector<Point>& points, size_t columns = kMostColumns);

/// Sets line, faint and window of `curve` from points in the order of x: the line is their smoothed mean, and what is
/// faint keeps the extremes of all of them. @param window  0: usual_window().
void set_smoothed_line(const std::vector<Point>& points, size_t window, Curve& curve);

}  // namespace athanor::inline plot
