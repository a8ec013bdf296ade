#pragma once
// The width of the terminal that standard output is.

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>

namespace athanor::inline cli {

/// Returns the columns of the terminal; 0 if standard output is none.
inline size_t terminal_width() {
  struct winsize size {};
  const bool known = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return known ? size.ws_col : 0;
}

}  // namespace athanor::inline cli
