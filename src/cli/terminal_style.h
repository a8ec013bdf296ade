#pragma once
// What the terminal of standard output can show.

#include <cstddef>

#include "plot/terminal_picture.h"

namespace athanor::inline cli {

/// Returns size, colours and characters of the terminal; without one, plain characters of 80 columns.
/// @param num_curves  without colours, only letters distinguish several.
TerminalStyle style_of_terminal(size_t num_curves);

}  // namespace athanor::inline cli
