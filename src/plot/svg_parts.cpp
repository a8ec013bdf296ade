#include "plot/svg_parts.h"

#include <fmt/core.h>

#include <iterator>

#include "base/text.h"

namespace athanor::inline plot {
namespace {

// As on a terminal (terminal_picture.cpp); they have contrast with white and with the dark background.
constexpr const char* kInks[] = {"#2f7fd6", "#e0701f", "#2a9d5c", "#b75bc4",
                                 "#b98a14", "#1a9aab", "#dd5163", "#7d8a2e"};

constexpr const char* kStyle =
    "<style>\n"
    ".paper{fill:#fff} text{fill:#333} .grid{stroke:#ddd} .level{stroke:#777;stroke-dasharray:5 4} "
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round} .faint{fill:none;stroke-width:.7;stroke-opacity:.35} "
    ".band{stroke:none;fill-opacity:.16} .bar{stroke-width:1.2} .title{font-weight:bold} .small{font-size:11px} "
    ".pale{fill:#777} .area{fill-opacity:.85} .heat{fill:#b8400a}\n"
    "@media (prefers-color-scheme: dark){.paper{fill:#15181c} text{fill:#d8d8d8} .grid{stroke:#3a3f45} "
    ".level{stroke:#999} .pale{fill:#999} .heat{fill:#ffa15c}}\n"
    "</style>\n";

}  // namespace

const char* svg_ink(size_t curve) { return kInks[curve % std::size(kInks)]; }

const char* svg_dashes(size_t curve) { return curve < std::size(kInks) ? "" : " stroke-dasharray=\"7 3\""; }

std::string escape_xml(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string end_of_name(const std::string& name, size_t most_bytes) {
  if (name.size() <= most_bytes) return name;
  size_t begin = name.size() - most_bytes;
  while (begin < name.size() && (name[begin] & 0xC0) == 0x80) ++begin;  // not within a character
  return "…" + name.substr(begin);
}

std::string svg_text(double x, double y, const std::string& text, const char* anchor, const char* how) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}{}>{}</text>\n", x, y, anchor,
                     *how == '\0' ? "" : " ", how, escape_xml(text));
}

std::string svg_line(double x1, double y1, double x2, double y2, const std::string& how) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, how);
}

std::string svg_document(double width, double height, const std::string& elements) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n{2}<rect class=\"paper\" width=\"{0}\" "
      "height=\"{1}\"/>\n{3}</svg>\n",
      width, height, kStyle, elements);
}

}  // namespace athanor::inline plot
