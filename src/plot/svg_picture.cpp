#include "plot/svg_picture.h"

#include <fmt/core.h>

#include <algorithm>

#include "plot/svg_parts.h"

namespace athanor::inline plot {
namespace {

constexpr double kWidth = 760, kLeft = 64, kRight = 16, kPlotHeight = 280, kLegendRow = 18, kTitle = 24, kBelow = 48,
                 kNoteRow = 18;

// One figure, whose top is at a height of the picture.
class Panel {
 public:
  Panel(const Figure& figure, double top, size_t index)
      : figure_(figure), axes_(axes_of(figure, 8, 6)), index_(index), legend_top_(top + kTitle),
        plot_top_(legend_top_ + kLegendRow * static_cast<double>(figure.curves.size()) + 6) {}

  double bottom() const { return plot_top_ + kPlotHeight + kBelow + (figure_.note.empty() ? 0 : kNoteRow); }

  std::string draw() const {
    std::string svg = svg_text(14, legend_top_ - 8, figure_.y_label) + legend() + grid() + levels();
    svg += fmt::format("<clipPath id=\"plot{}\"><rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/></clipPath>\n",
                       index_, kLeft, plot_top_, kWidth - kLeft - kRight, kPlotHeight);
    for (size_t i = 0; i < figure_.curves.size(); ++i) svg += path(figure_.curves[i].faint, "faint", i);
    for (size_t i = 0; i < figure_.curves.size(); ++i) svg += path(figure_.curves[i].line, "line", i) + dots(i);
    if (!figure_.note.empty()) svg += svg_text(kLeft, bottom() - 10, figure_.note + "; the pale one has every step");
    return svg;
  }

 private:
  double x(double value) const { return kLeft + axes_.x.share(value) * (kWidth - kLeft - kRight); }
  double y(double value) const { return plot_top_ + (1 - axes_.y.share(value)) * kPlotHeight; }

  std::string circle(double at_x, double at_y, size_t curve) const {
    return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\" class=\"dot\"/>\n", at_x, at_y,
                       svg_ink(curve));
  }

  std::string legend() const {
    std::string svg;
    for (size_t i = 0; i < figure_.curves.size(); ++i) {
      const auto& curve = figure_.curves[i];
      const double row = legend_top_ + kLegendRow * static_cast<double>(i) + 9;
      svg += svg_line(kLeft, row, kLeft + 22, row,
                      fmt::format("stroke=\"{}\" stroke-width=\"2.5\"{}", svg_ink(i), svg_dashes(i)));
      constexpr size_t kMostBytes = 62;  // more would reach the second column
      svg += svg_text(kLeft + 28, row + 4, end_of_name(curve.name, curve.dots.empty() ? 2 * kMostBytes : kMostBytes));
      if (curve.dots.empty()) continue;
      constexpr double kDots = 470;  // where the second column of the legend begins
      svg += circle(kDots, row, i) + svg_text(kDots + 10, row + 4, curve.dots_name);
    }
    return svg;
  }

  std::string grid() const {
    std::string svg;
    for (const auto& tick : axes_.y.ticks) {
      svg += svg_line(kLeft, y(tick.value), kWidth - kRight, y(tick.value), "class=\"grid\"");
      svg += svg_text(kLeft - 8, y(tick.value) + 4, tick.label, "end");
    }
    const double bottom = plot_top_ + kPlotHeight;
    for (const auto& tick : axes_.x.ticks) {
      svg += svg_line(x(tick.value), bottom, x(tick.value), bottom + 4, "class=\"grid\"");
      svg += svg_text(x(tick.value), bottom + 18, tick.label, "middle");
    }
    return svg + svg_text((kLeft + kWidth - kRight) / 2, bottom + 36, figure_.x_label, "middle");
  }

  std::string levels() const {
    std::string svg;
    for (const auto& level : figure_.levels) {
      svg += svg_line(kLeft, y(level.y), kWidth - kRight, y(level.y), "class=\"level\"");
      svg += svg_text(kWidth - kRight - 4, y(level.y) - 6, fmt::format("{} {:g}", level.name, level.y), "end");
    }
    return svg;
  }

  std::string path(const std::vector<Point>& points, const char* kind, size_t curve) const {
    if (points.size() == 1 && figure_.curves[curve].dots.empty()) return circle(x(points[0].x), y(points[0].y), curve);
    if (points.size() < 2) return "";
    std::string svg = "<polyline points=\"";
    for (const auto& point : points) svg += fmt::format("{:.1f},{:.1f} ", x(point.x), y(point.y));
    svg.back() = '"';
    return svg + fmt::format(" class=\"{}\" stroke=\"{}\"{} clip-path=\"url(#plot{})\"/>\n", kind, svg_ink(curve),
                             svg_dashes(curve), index_);
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
  return svg_document(kWidth, height, body);
}

}  // namespace athanor::inline plot
