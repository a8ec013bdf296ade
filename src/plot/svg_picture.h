#pragma once
// Figures as an SVG of its own. Its background is white, or dark for viewers that prefer a dark scheme.

#include <string>
#include <vector>

#include "plot/figure.h"

namespace athanor::inline plot {

/// Returns an SVG with the figures one below the other, each with its title, its legend and its notes.
std::string draw_svg(const std::vector<Figure>& figures);

/// Returns an SVG with small figures side by side, with one legend and one horizontal axis. Each has a curve of each of
/// the same runs, which may be empty; a run alone needs no legend.
/// @param figures  at least one, each with at least one point.
std::string draw_small_multiples(const std::vector<Figure>& figures, const std::string& title, const std::string& note);

}  // namespace athanor::inline plot
