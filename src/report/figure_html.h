#pragma once
// A figure as a part of a page: its pictures, its values for the pointer, and a table for those who read instead.

#include <string>

#include "plot/figure.h"

namespace athanor::inline report {

/// @param id  unique in the page.
std::string figure_html(const Figure& figure, const std::string& id);

/// Returns a place on an axis, with the digits that tell it from its neighbours: "2,500,000", "1:12:05" for a time; ""
/// if it is not finite.
std::string place_text(XAxis axis, double value);

}  // namespace athanor::inline report
