#include "plot/svg_chart.h"

#include <fmt/core.h>

#include <algorithm>

#include "plot/figure_axes.h"
#include "plot/svg_parts.h"

namespace athanor::inline plot {
namespace {

constexpr double kLeft = 52, kRight = 14, kTop = 10, kBelow = 40;
constexpr double kBroad = 600;    // a chart that is wider has room for more ticks
constexpr size_t kMostDots = 40;  // more on one line would touch

class Chart {
 public:
  Chart(const Figure& figure, XAxis axis, const ChartSize& size, const TickedAxis* x)
      : figure_(stacked_up(figure)), axis_(axis), size_(size), across_(size.width - kLeft - kRight),
        high_(size.height - kTop - kBelow), x_(x ? *x : x_axis_of({&figure, 1}, axis, size.width > kBroad ? 8 : 5)),
        y_(y_axis_of(figure_, size.width > kBroad ? 7 : 5)) {}

  std::string draw() const {
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" "
        "aria-label=\"{}\" data-axis=\"{}\" data-x=\"{:.9g} {:.9g}\" data-box=\"{} {} {} {}\">\n",
        size_.width, size_.height, escape_xml(figure_.heading()), name_of(axis_), x_.low, x_.high, kLeft, kTop, across_,
        high_);
    svg += grid();
    // A part of a picture that is nested clips what lies outside of it.
    svg += fmt::format("<svg x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\" viewBox=\"{0} {1} {2} {3}\">\n", kLeft,
                       kTop, across_, high_);
    svg += figure_.is_heat_map() ? cells() : figure_.is_stacked ? areas() : lines();
    return svg + "</svg>\n" + dots() + levels() + marks() + "</svg>\n";
  }

 private:
  double x(double value) const { return kLeft + x_.share(value) * across_; }
  double y(double value) const { return kTop + (1 - y_.share(value)) * high_; }

  std::string grid() const {
    std::string svg;
    for (const Tick& tick : y_.ticks) {
      if (!figure_.is_heat_map())
        svg += svg_line(kLeft, y(tick.value), kLeft + across_, y(tick.value), "class=\"grid\"");
      svg += svg_text(kLeft - 7, y(tick.value) + 4, tick.label, "end", "class=\"small\"");
    }
    const double bottom = kTop + high_;
    for (const Tick& tick : x_.ticks) {
      svg += svg_line(x(tick.value), bottom, x(tick.value), bottom + 4, "class=\"grid\"");
      svg += svg_text(x(tick.value), bottom + 17, tick.label, "middle", "class=\"small\"");
    }
    return svg + svg_text(kLeft + across_ / 2, bottom + 33, x_.label, "middle", "class=\"small pale\"");
  }

  // Returns the attribute `points` of a line through the points, moved up by a number of standard errors.
  std::string places(const std::vector<Point>& points, double errors = 0) const {
    std::string text;
    for (const Point& point : points)
      text += fmt::format("{:.1f},{:.1f} ", x(point.at(axis_)), y(point.y + errors * point.error));
    return text;
  }

  std::string polyline(const std::vector<Point>& points, const char* kind, size_t ink) const {
    if (points.size() < 2) return "";
    return fmt::format("<polyline points=\"{}\" class=\"{}\" stroke=\"{}\"{}/>\n", places(points), kind, svg_ink(ink),
                       svg_dashes(ink));
  }

  // Returns a band along the line, or a bar at a point alone.
  std::string errors(const Curve& curve) const {
    if (std::ranges::none_of(curve.line, [](const Point& point) { return point.error > 0; })) return "";
    const Point& first = curve.line[0];
    if (curve.line.size() == 1)
      return svg_line(x(first.at(axis_)), y(first.y + first.error), x(first.at(axis_)), y(first.y - first.error),
                      fmt::format("class=\"bar\" stroke=\"{}\"", svg_ink(curve.ink)));
    const std::vector<Point> back(curve.line.rbegin(), curve.line.rend());
    return fmt::format("<polygon points=\"{}{}\" class=\"band\" fill=\"{}\"/>\n", places(curve.line, 1),
                       places(back, -1), svg_ink(curve.ink));
  }

  std::string lines() const {
    std::string svg;
    for (const Curve& curve : figure_.curves) svg += polyline(curve.faint, "faint", curve.ink) + errors(curve);
    for (const Curve& curve : figure_.curves) svg += polyline(curve.line, "line", curve.ink);
    return svg;
  }

  // From the top down, so that each area covers the rest of the one above it.
  std::string areas() const {
    std::string svg;
    for (auto curve = figure_.curves.rbegin(); curve != figure_.curves.rend(); ++curve) {
      if (curve->line.empty()) continue;
      std::vector<Point> base{curve->line.back(), curve->line.front()};
      for (Point& point : base) point.y = 0;
      svg += fmt::format("<polygon points=\"{}{}\" class=\"area\" fill=\"{}\"/>\n", places(curve->line), places(base),
                         svg_ink(curve->ink));
    }
    return svg;
  }

  // A share of white or of the dark ground is left for small values, so that the picture can be read in both.
  std::string cells() const {
    const HeatMap& map = figure_.heat_map;
    const Extent scale = map.scale.value_or(map.extent());
    std::string svg;
    for (size_t row = 0; row < map.values.size(); ++row) {
      const double top = y(y_.high - static_cast<double>(row)), bottom = y(y_.high - static_cast<double>(row + 1));
      for (size_t i = 0; i < map.columns.size(); ++i) {
        const double value = map.values[row][i];
        if (!std::isfinite(value)) continue;
        const double left = x(i == 0 ? 0 : map.columns[i - 1].at(axis_)), right = x(map.columns[i].at(axis_));
        const double share = scale.high > scale.low ? (value - scale.low) / (scale.high - scale.low) : 0;
        svg += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"heat\" "
            "fill-opacity=\"{:.2f}\"/>\n",
            left, top, std::max(0.5, right - left), bottom - top, 0.06 + 0.94 * std::clamp(share, 0.0, 1.0));
      }
    }
    return svg;
  }

  std::string dots() const {
    std::string svg;
    const auto add = [&](const std::vector<Point>& points, size_t ink) {
      for (const Point& point : points)
        svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"{}\" class=\"dot\"/>\n",
                           x(point.at(axis_)), y(point.y), svg_ink(ink));
    };
    for (const Curve& curve : figure_.curves) {
      add(curve.dots, curve.ink);
      if (curve.line.size() == 1 || (figure_.shows_points && curve.line.size() <= kMostDots))
        add(curve.line, curve.ink);
    }
    return svg;
  }

  std::string levels() const {
    std::string svg;
    for (const Level& level : figure_.levels) {
      svg += svg_line(kLeft, y(level.y), kLeft + across_, y(level.y), "class=\"level\"");
      svg += svg_text(kLeft + across_ - 4, y(level.y) - 5, fmt::format("{} {:g}", level.name, level.y), "end",
                      "class=\"small pale\"");
    }
    return svg;
  }

  std::string marks() const {
    std::string svg;
    for (const Mark& mark : figure_.marks) {
      const double at = mark.at.at(axis_);
      if (!std::isfinite(at)) continue;
      svg += fmt::format("<path d=\"M{:.1f} {:.1f}l5 9h-10z\" class=\"mark\" fill=\"{}\"><title>{}</title></path>\n",
                         std::clamp(x(at), kLeft, kLeft + across_), kTop + high_ - 9, svg_ink(mark.ink),
                         escape_xml(mark.text));
    }
    return svg;
  }

  Figure figure_;
  XAxis axis_;
  ChartSize size_;
  double across_, high_;
  TickedAxis x_, y_;
};

}  // namespace

std::string draw_chart(const Figure& figure, XAxis axis, const ChartSize& size, const TickedAxis* x) {
  return figure.has_points() ? Chart(figure, axis, size, x).draw() : "";
}

}  // namespace athanor::inline plot
