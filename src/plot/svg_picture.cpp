#include "plot/svg_picture.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"

namespace athanor {
namespace {

constexpr double kWidth = 760, kLeft = 64, kRight = 16, kPlotHeight = 280, kLegendRow = 18, kTitle = 24, kBelow = 48,
                 kNoteRow = 18;
// As on a terminal (terminal_picture.cpp); they have contrast with white and with the dark background.
constexpr const char* kInks[] = {"#2f7fd6", "#e0701f", "#2a9d5c", "#b75bc4",
                                 "#b98a14", "#1a9aab", "#dd5163", "#7d8a2e"};

constexpr const char* kStyle =
    "<style>\n"
    ".paper{fill:#fff} text{fill:#333} .grid{stroke:#ddd} .level{stroke:#777;stroke-dasharray:5 4} "
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round} .faint{fill:none;stroke-width:.7;stroke-opacity:.35}\n"
    "@media (prefers-color-scheme: dark){.paper{fill:#15181c} text{fill:#d8d8d8} .grid{stroke:#3a3f45} "
    ".level{stroke:#999}}\n"
    "</style>\n";

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

// The end of a long path distinguishes it from others.
std::string end_of_name(const std::string& name, size_t most_bytes) {
  if (name.size() <= most_bytes) return name;
  size_t begin = name.size() - most_bytes;
  while (begin < name.size() && (name[begin] & 0xC0) == 0x80) ++begin;  // not within a character
  return "…" + name.substr(begin);
}

std::string text_at(double x, double y, const std::string& text, const char* anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escape_xml(text));
}

std::string line_at(double x1, double y1, double x2, double y2, const std::string& how) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, how);
}

// One figure, whose top is at a height of the picture.
class Panel {
 public:
  Panel(const Figure& figure, double top, size_t index)
      : figure_(figure), axes_(axes_of(figure, 8, 6)), index_(index), legend_top_(top + kTitle),
        plot_top_(legend_top_ + kLegendRow * static_cast<double>(figure.curves.size()) + 6) {}

  double bottom() const { return plot_top_ + kPlotHeight + kBelow + (figure_.note.empty() ? 0 : kNoteRow); }

  std::string draw() const {
    std::string svg = text_at(14, legend_top_ - 8, figure_.y_label) + legend() + grid() + levels();
    svg += fmt::format("<clipPath id=\"plot{}\"><rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/></clipPath>\n",
                       index_, kLeft, plot_top_, kWidth - kLeft - kRight, kPlotHeight);
    for (size_t i = 0; i < figure_.curves.size(); ++i) svg += path(figure_.curves[i].faint, "faint", i);
    for (size_t i = 0; i < figure_.curves.size(); ++i) svg += path(figure_.curves[i].line, "line", i) + dots(i);
    if (!figure_.note.empty()) svg += text_at(kLeft, bottom() - 10, figure_.note + "; the pale one has every step");
    return svg;
  }

 private:
  double x(double value) const { return kLeft + axes_.x.share(value) * (kWidth - kLeft - kRight); }
  double y(double value) const { return plot_top_ + (1 - axes_.y.share(value)) * kPlotHeight; }
  static const char* ink(size_t curve) { return kInks[curve % std::size(kInks)]; }
  // Curves beyond the number of colours have dashes.
  static const char* dashes(size_t curve) { return curve < std::size(kInks) ? "" : " stroke-dasharray=\"7 3\""; }

  std::string circle(double at_x, double at_y, size_t curve) const {
    return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\" class=\"dot\"/>\n", at_x, at_y,
                       ink(curve));
  }

  std::string legend() const {
    std::string svg;
    for (size_t i = 0; i < figure_.curves.size(); ++i) {
      const auto& curve = figure_.curves[i];
      const double row = legend_top_ + kLegendRow * static_cast<double>(i) + 9;
      svg +=
          line_at(kLeft, row, kLeft + 22, row, fmt::format("stroke=\"{}\" stroke-width=\"2.5\"{}", ink(i), dashes(i)));
      constexpr size_t kMostBytes = 62;  // more would reach the second column
      svg += text_at(kLeft + 28, row + 4, end_of_name(curve.name, curve.dots.empty() ? 2 * kMostBytes : kMostBytes));
      if (curve.dots.empty()) continue;
      constexpr double kDots = 470;  // where the second column of the legend begins
      svg += circle(kDots, row, i) + text_at(kDots + 10, row + 4, curve.dots_name);
    }
    return svg;
  }

  std::string grid() const {
    std::string svg;
    for (const auto& tick : axes_.y.ticks) {
      svg += line_at(kLeft, y(tick.value), kWidth - kRight, y(tick.value), "class=\"grid\"");
      svg += text_at(kLeft - 8, y(tick.value) + 4, tick.label, "end");
    }
    const double bottom = plot_top_ + kPlotHeight;
    for (const auto& tick : axes_.x.ticks) {
      svg += line_at(x(tick.value), bottom, x(tick.value), bottom + 4, "class=\"grid\"");
      svg += text_at(x(tick.value), bottom + 18, tick.label, "middle");
    }
    return svg + text_at((kLeft + kWidth - kRight) / 2, bottom + 36, figure_.x_label, "middle");
  }

  std::string levels() const {
    std::string svg;
    for (const auto& level : figure_.levels) {
      svg += line_at(kLeft, y(level.y), kWidth - kRight, y(level.y), "class=\"level\"");
      svg += text_at(kWidth - kRight - 4, y(level.y) - 6, fmt::format("{} {:g}", level.name, level.y), "end");
    }
    return svg;
  }

  std::string path(const std::vector<Point>& points, const char* kind, size_t curve) const {
    if (points.size() == 1 && figure_.curves[curve].dots.empty()) return circle(x(points[0].x), y(points[0].y), curve);
    if (points.size() < 2) return "";
    std::string svg = "<polyline points=\"";
    for (const auto& point : points) svg += fmt::format("{:.1f},{:.1f} ", x(point.x), y(point.y));
    svg.back() = '"';
    return svg + fmt::format(" class=\"{}\" stroke=\"{}\"{} clip-path=\"url(#plot{})\"/>\n", kind, ink(curve),
                             dashes(curve), index_);
  }

  std::string dots(size_t curve) const {
    std::string svg;
    for (const auto& point : figure_.curves[curve].dots) svg += circle(x(point.x), y(point.y), curve);
    return svg;
  }

  const Figure& figure_;
  FigureAxes axes_;
  size_t index_;
  double legend_top_, plot_top_;
};

}  // namespace

std::string draw_svg(const std::vector<Figure>& figures) {
  std::string body;
  double height = 0;
  for (size_t i = 0; i < figures.size(); ++i) {
    const Panel panel(figures[i], height, i);
    body += panel.draw();
    height = panel.bottom();
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n{2}<rect class=\"paper\" width=\"{0}\" "
      "height=\"{1}\"/>\n{3}</svg>\n",
      kWidth, height, kStyle, body);
}

}  // namespace athanor
