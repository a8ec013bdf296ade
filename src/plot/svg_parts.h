#pragma once
// What the SVGs of this room have in common: their colours and style, and texts and lines as elements.

#include <cstddef>
#include <string>

namespace athanor::inline plot {

/// Returns the colour of a curve.
const char* svg_ink(size_t curve);
/// Returns the attribute that dashes curves beyond the number of colours, or "".
const char* svg_dashes(size_t curve);

std::string escape_xml(const std::string& text);

/// Returns the end of a long name, which distinguishes paths from one another, with `…` before it.
std::string end_of_name(const std::string& name, size_t most_bytes);

/// @param anchor  start, middle or end.
/// @param how     further attributes.
std::string svg_text(double x, double y, const std::string& text, const char* anchor = "start", const char* how = "");
std::string svg_line(double x1, double y1, double x2, double y2, const std::string& how);

/// Returns an SVG of that size around elements. Its background is white, or dark for viewers that prefer a dark scheme.
std::string svg_document(double width, double height, const std::string& elements);

}  // namespace athanor::inline plot
