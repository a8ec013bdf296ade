#pragma once
// What the terminal of standard output can show, and how wide it is.

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>

#include "plot/terminal_picture.h"

namespace athanor::inline cli {

/// Returns size, colours and characters of the terminal; without one, plain characters of 80 columns.
/// @param num_curves  without colours, only letters distinguish several.
TerminalStyle style_of_terminal(size_t num_curves);

/// Returns the columns of the terminal; 0 if standard output is none.
inline size_t terminal_width() {
  struct winsize size {};
  const bool known = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return known ? size.ws_col : 0;
}

}  // namespace athanor::inline cli
