#pragma once
// Draws figures as an SVG.

#include <string>
#include <vector>

#include "plot/figure.h"

namespace athanor::inline plot {

/// Returns an SVG with the figures one below the other. Its background is white, or dark for viewers that prefer a dark
/// scheme.
std::string draw_svg(const std::vector<Figure>& figures);

}  // namespace athanor::inline plot
