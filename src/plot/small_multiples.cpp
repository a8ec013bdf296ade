#include "plot/small_multiples.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "plot/svg_parts.h"

namespace athanor::inline plot {
namespace {

constexpr double kPanelWidth = 290, kPanelLeft = 50, kPanelRight = 16, kAcross = kPanelWidth - kPanelLeft - kPanelRight;
constexpr double kPanelTop = 44, kHigh = 140, kPanelBelow = 44, kPanelHeight = kPanelTop + kHigh + kPanelBelow;
constexpr double kHeadRow = 28, kNameRow = 18, kFootRow = 24;
constexpr size_t kMostInRow = 3;
constexpr size_t kMostDots = 40;  // more on one curve would touch
constexpr size_t kBytesOfTitle = 38, kBytesOfName = 120;

TickedAxis common_x_axis(const SmallMultiples& multiples) {
  double low = INFINITY, high = -INFINITY;
  for (const auto& panel : multiples.panels) {
    for (const auto& curve : panel.figure.curves) {
      for (const auto& point : curve.line) {
        low = std::min(low, point.x);
        high = std::max(high, point.x);
      }
    }
  }
  return horizontal_axis(low, high, 5);
}

TickedAxis y_axis(const Multiple& panel) {
  double low = INFINITY, high = -INFINITY;
  for (const auto& level : panel.figure.levels) {
    low = std::min(low, level.y);
    high = std::max(high, level.y);
  }
  for (size_t i = 0; i < panel.figure.curves.size(); ++i) {
    const auto& line = panel.figure.curves[i].line;
    for (size_t j = 0; j < line.size(); ++j) {
      low = std::min(low, line[j].y - panel.errors[i][j]);
      high = std::max(high, line[j].y + panel.errors[i][j]);
    }
  }
  return vertical_axis(low, high, 5);
}

class SmallPanel {
 public:
  SmallPanel(const Multiple& panel, const TickedAxis& x, double left, double top)
      : panel_(panel), x_axis_(x), y_axis_(y_axis(panel)), left_(left + kPanelLeft), top_(top + kPanelTop) {}

  std::string draw(const std::string& x_label) const {
    std::string svg = head() + grid();
    if (!x_label.empty()) svg += svg_text(left_ + kAcross / 2, top_ + kHigh + 34, x_label, "middle", "class=\"small\"");
    for (const auto& level : panel_.figure.levels)
      svg += svg_line(left_, y(level.y), left_ + kAcross, y(level.y), "class=\"level\"");
    const size_t num_curves = panel_.figure.curves.size();
    for (size_t i = 0; i < num_curves; ++i) svg += errors(i);
    for (size_t i = 0; i < num_curves; ++i) svg += line(i) + dots(i);
    return svg;
  }

 private:
  double x(double value) const { return left_ + x_axis_.share(value) * kAcross; }
  double y(double value) const { return top_ + (1 - y_axis_.share(value)) * kHigh; }

  std::string head() const {
    std::string svg = svg_text(left_, top_ - 24, end_of_name(panel_.title, kBytesOfTitle), "start", "class=\"title\"") +
                      svg_text(left_, top_ - 9, panel_.subtitle, "start", "class=\"small pale\"");
    if (panel_.figure.levels.empty()) return svg;
    const auto& level = panel_.figure.levels[0];
    return svg + svg_text(left_ + kAcross, top_ - 9, fmt::format("{} {:.4g}", level.name, level.y), "end",
                          "class=\"small pale\"");
  }

  std::string grid() const {
    std::string svg;
    for (const auto& tick : y_axis_.ticks) {
      svg += svg_line(left_, y(tick.value), left_ + kAcross, y(tick.value), "class=\"grid\"");
      svg += svg_text(left_ - 6, y(tick.value) + 4, tick.label, "end", "class=\"small\"");
    }
    for (const auto& tick : x_axis_.ticks) {
      svg += svg_line(x(tick.value), top_ + kHigh, x(tick.value), top_ + kHigh + 4, "class=\"grid\"");
      svg += svg_text(x(tick.value), top_ + kHigh + 17, tick.label, "middle", "class=\"small\"");
    }
    return svg;
  }

  std::string points_of(const std::vector<Point>& points) const {
    std::string text;
    for (const auto& point : points) text += fmt::format("{:.1f},{:.1f} ", x(point.x), y(point.y));
    return text;
  }

  // A band along the line, or a bar at a point alone.
  std::string errors(size_t curve) const {
    const auto& points = panel_.figure.curves[curve].line;
    std::vector<Point> upper, lower;
    for (size_t i = 0; i < points.size(); ++i) {
      upper.push_back({points[i].x, points[i].y + panel_.errors[curve][i]});
      lower.push_back({points[i].x, points[i].y - panel_.errors[curve][i]});
    }
    if (points.size() == 1)
      return svg_line(x(upper[0].x), y(upper[0].y), x(lower[0].x), y(lower[0].y),
                      fmt::format("class=\"bar\" stroke=\"{}\"", svg_ink(curve)));
    if (points.empty()) return "";
    upper = thin(upper, static_cast<size_t>(kAcross));
    lower = thin(lower, static_cast<size_t>(kAcross));
    std::ranges::reverse(lower);
    return fmt::format("<polygon points=\"{}{}\" class=\"band\" fill=\"{}\"/>\n", points_of(upper), points_of(lower),
                       svg_ink(curve));
  }

  std::string line(size_t curve) const {
    const auto& points = panel_.figure.curves[curve].line;
    if (points.size() < 2) return "";
    return fmt::format("<polyline points=\"{}\" class=\"line\" stroke=\"{}\"{}/>\n",
                       points_of(thin(points, static_cast<size_t>(kAcross))), svg_ink(curve), svg_dashes(curve));
  }

  std::string dots(size_t curve) const {
    const auto& points = panel_.figure.curves[curve].line;
    std::string svg;
    if (points.size() > kMostDots) return svg;
    for (const auto& point : points)
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>\n", x(point.x), y(point.y),
                         svg_ink(curve));
    return svg;
  }

  const Multiple& panel_;
  const TickedAxis& x_axis_;
  TickedAxis y_axis_;
  double left_, top_;
};

std::string legend_of(const std::vector<std::string>& names, double top) {
  std::string svg;
  for (size_t i = 0; i < names.size(); ++i) {
    const double row = top + kNameRow * static_cast<double>(i) + 8;
    svg += svg_line(kPanelLeft, row, kPanelLeft + 22, row,
                    fmt::format("stroke=\"{}\" stroke-width=\"2.5\"{}", svg_ink(i), svg_dashes(i)));
    svg += svg_text(kPanelLeft + 28, row + 4, end_of_name(names[i], kBytesOfName));
  }
  return svg;
}

}  // namespace

std::string draw_small_multiples(const SmallMultiples& multiples) {
  const size_t count = multiples.panels.size();
  // Four make a square.
  const size_t in_row = count == 4 ? 2 : std::min(count, kMostInRow);
  // A panel alone leaves room for the title and the note.
  const double width = kPanelWidth * static_cast<double>(std::max<size_t>(in_row, 2));
  const TickedAxis x_axis = common_x_axis(multiples);
  std::string body = svg_text(kPanelLeft, 20, multiples.title, "start", "class=\"title\" font-size=\"14\"");
  double top = kHeadRow;
  if (multiples.names.size() > 1) {
    body += legend_of(multiples.names, top + 2);
    top += kNameRow * static_cast<double>(multiples.names.size()) + 4;
  }
  for (size_t i = 0; i < count; ++i) {
    const auto column = static_cast<double>(i % in_row), row = static_cast<double>(i / in_row);
    const bool is_last_in_column = i + in_row >= count;
    body += SmallPanel(multiples.panels[i], x_axis, column * kPanelWidth, top + row * kPanelHeight)
                .draw(is_last_in_column ? multiples.x_label : "");
  }
  top += kPanelHeight * std::ceil(static_cast<double>(count) / static_cast<double>(in_row));
  body += svg_text(kPanelLeft, top + 8, multiples.note, "start", "class=\"small pale\"");
  return svg_document(width, top + kFootRow, body);
}

}  // namespace athanor::inline plot
