#pragma once
// Draws a figure with characters.

#include <string>

#include "plot/figure.h"

namespace athanor::inline plot {

struct TerminalStyle {
  int columns = 80, rows = 24;  ///< size of the terminal; the picture with its legend is as wide, and no higher
  /// Lines from braille characters. Otherwise each curve has its own character: `*`, or with several
  /// curves a, b, c …, and capital letters for dots.
  bool braille = true;
  bool colours = true;  ///< escape sequences that colour each curve, in tones that show on light and dark backgrounds
};

/// Returns lines of text, each with its newline: what the vertical axis shows, the legend, the picture, its horizontal
/// axis, how lines are smoothed. The picture has the lines, dots and levels of a figure, and
/// nothing else of it.
/// @param figure  with at least one point of a curve.
std::string draw_on_terminal(const Figure& figure, const TerminalStyle& style);

}  // namespace athanor::inline plot
