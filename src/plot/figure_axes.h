#pragma once
// The axes of a figure: what they hold, and what lies outside of them.

#include <optional>
#include <span>

#include "plot/figure.h"

namespace athanor::inline plot {

/// Returns an axis with its label that holds the lines, dots and heat maps of all `figures`, which have at least one
/// point. What is faint may lie outside.
TickedAxis x_axis_of(std::span<const Figure> figures, XAxis axis, int most_ticks);

/// Returns an axis that holds the lines with their errors, the dots and the levels of a figure that is stacked up. With
/// Figure::holds_faint it also holds what is faint, except a few values that are so far off that nothing else would be
/// seen. That of a heat map has the rows, from row 0 at the top.
TickedAxis y_axis_of(const Figure& figure, int most_ticks);

/// Returns the least and the largest value of what is faint, if some of it is outside of the picture.
std::optional<Extent> values_outside(const Figure& figure);

}  // namespace athanor::inline plot
