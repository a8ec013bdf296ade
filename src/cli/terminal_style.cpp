#include "cli/terminal_style.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace athanor::inline cli {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value != '\0';
}

// The locale names its characters; without one most terminals show UTF-8.
bool shows_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!is_set(name)) continue;
    const std::string locale = std::getenv(name);
    return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return true;
}

}  // namespace

TerminalStyle style_of_terminal(size_t num_curves) {
  TerminalStyle style;
  struct winsize size {};
  if (::isatty(STDOUT_FILENO) != 1) return {.braille = false, .colours = false};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    style.columns = size.ws_col;
    style.rows = size.ws_row;
  }
  const char* terminal = std::getenv("TERM");
  style.colours = !is_set("NO_COLOR") && terminal && std::string(terminal) != "dumb";
  style.braille = shows_unicode() && (style.colours || num_curves == 1);
  return style;
}

}  // namespace athanor::inline cli
