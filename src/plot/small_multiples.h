#pragma once
// Small figures side by side, with one legend and the same horizontal axis: each has a curve of the same runs.

#include <string>
#include <vector>

#include "plot/figure.h"

namespace athanor::inline plot {

/// A small figure. Each curve has its points in `line`, and belongs to the run of the same index; it may be empty.
struct Multiple {
  std::string title, subtitle;              ///< two lines above it: what it shows; in what unit or metric
  Figure figure;                            ///< its first level is named above it, too
  std::vector<std::vector<double>> errors;  ///< for each curve and point, drawn as value ± error; 0: none
};

struct SmallMultiples {
  std::string title, x_label, note;
  std::vector<std::string> names;  ///< how the runs are called; one alone needs no legend
  std::vector<Multiple> panels;    ///< at least one, each with at least one point
};

/// Returns an SVG with at most three panels in a row.
std::string draw_small_multiples(const SmallMultiples& multiples);

}  // namespace athanor::inline plot
