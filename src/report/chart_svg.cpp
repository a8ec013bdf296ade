#include "report/chart_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plot/axis.h"
#include "plot/svg_parts.h"

namespace athanor::inline report {
namespace {

constexpr double kLeft = 52, kRight = 14, kTop = 10, kBelow = 40, kHour = 3600;

// Time is drawn in hours, or in minutes if it is short.
double unit_of_axis(ChartAxis axis, double longest) {
  if (axis != ChartAxis::kTime) return 1;
  return longest < 3 * kHour ? 60 : kHour;
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
};

// Where values are within the picture.
class Scale {
 public:
  Scale(ChartAxis axis, const ChartSize& size, Range x, Range y, int y_ticks)
      : axis_(axis), size_(size), unit_(unit_of_axis(axis, x.high)),
        x_(horizontal_axis(x.low / unit_, x.high / unit_, size.width > 600 ? 8 : 5)),
        y_(vertical_axis(y.low, y.high, y_ticks)) {}

  double x(double value) const { return kLeft + x_.share(value / unit_) * across(); }
  double y(double value) const { return kTop + (1 - y_.share(value)) * high(); }
  double across() const { return size_.width - kLeft - kRight; }
  double high() const { return size_.height - kTop - kBelow; }

  std::string grid(bool with_y = true) const {
    std::string svg;
    for (const auto& tick : y_.ticks) {
      if (!with_y) break;
      svg += svg_line(kLeft, y(tick.value), size_.width - kRight, y(tick.value), "class=\"grid\"");
      svg += svg_text(kLeft - 7, y(tick.value) + 4, tick.label, "end", "class=\"small\"");
    }
    const double bottom = kTop + high();
    for (const auto& tick : x_.ticks) {
      const double at = x(tick.value * unit_);
      svg += svg_line(at, bottom, at, bottom + 4, "class=\"grid\"");
      svg += svg_text(at, bottom + 17, tick.label, "middle", "class=\"small\"");
    }
    const std::string name = axis_ != ChartAxis::kTime ? axis_name(axis_)
                             : unit_ == 60             ? "minutes of training"
                                                       : axis_name(axis_);
    return svg + svg_text(kLeft + across() / 2, bottom + 33, name, "middle", "class=\"small pale\"");
  }

  std::string begin(const std::string& label) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" "
        "aria-label=\"{}\" "
        "data-axis=\"{}\" data-x=\"{:.9g} {:.9g}\" data-y=\"{:.9g} {:.9g}\" data-box=\"{} {} {} {}\">\n",
        size_.width, size_.height, escape_xml(label), axis_name(axis_), x_.low * unit_, x_.high * unit_, y_.low,
        y_.high, kLeft, kTop, across(), high());
  }

 private:
  ChartAxis axis_;
  ChartSize size_;
  double unit_;
  TickedAxis x_, y_;
};

// The tops of stacked areas: the sum of a series and those before it.
std::vector<std::vector<double>> tops_of(const Chart& chart) {
  std::vector<std::vector<double>> tops;
  for (const ChartSeries& series : chart.series) {
    std::vector<double> top;
    for (size_t i = 0; i < series.line.size(); ++i)
      top.push_back(series.line[i].value + (tops.empty() ? 0 : tops.back()[i]));
    tops.push_back(std::move(top));
  }
  return tops;
}

Range x_range(const Chart& chart, ChartAxis axis) {
  Range range;
  for (const auto& series : chart.series)
    for (const auto* points : {&series.line, &series.faint, &series.dots})
      for (const auto& point : *points) range.add(point.at(axis));
  return range;
}

// Returns the range without one in a hundred values at each end.
Range usual_range(std::vector<double> values) {
  Range range;
  if (values.empty()) return range;
  std::ranges::sort(values);
  const size_t cut = values.size() / 100;
  range.add(values[cut]);
  range.add(values[values.size() - 1 - cut]);
  return range;
}

Range faint_range(const Chart& chart, bool all) {
  Range range;
  for (const auto& series : chart.series) {
    std::vector<double> values;
    for (const auto& point : series.faint) values.push_back(point.value);
    const Range usual = usual_range(values);
    for (const double value : all ? values : std::vector{usual.low, usual.high}) range.add(value);
  }
  return range;
}

Range without_faint(const Chart& chart) {
  Range range;
  for (const auto& level : chart.levels) range.add(level.value);
  if (chart.is_stacked) {
    range.add(0);
    for (const auto& top : tops_of(chart))
      for (const double value : top) range.add(value);
    return range;
  }
  for (const auto& series : chart.series) {
    for (size_t i = 0; i < series.line.size(); ++i) {
      const double error = series.errors.empty() ? 0 : series.errors[i];
      range.add(series.line[i].value - error);
      range.add(series.line[i].value + error);
    }
    for (const auto& point : series.dots) range.add(point.value);
  }
  return range;
}

constexpr double kMostStretch = 2.5;  // by which a few values that are far off may shrink the rest

// What is faint lies within, except a few values that are far off.
Range y_range(const Chart& chart) {
  Range range = without_faint(chart);
  if (chart.is_stacked) return range;
  const auto add = [&](const Range& more) {
    range.add(more.low);
    range.add(more.high);
  };
  add(faint_range(chart, false));
  const Range faint = faint_range(chart, true);
  const double all = std::max(range.high, faint.high) - std::min(range.low, faint.low);
  if (all <= kMostStretch * (range.high - range.low)) add(faint);
  return range;
}

class Drawing {
 public:
  Drawing(const Chart& chart, ChartAxis axis, const ChartSize& size)
      : chart_(chart), axis_(axis), size_(size),
        scale_(axis, size, x_range(chart, axis), y_range(chart), size.width > 600 ? 7 : 5) {}

  std::string draw() const {
    std::string svg = scale_.begin(chart_.title + (chart_.unit.empty() ? "" : ", " + chart_.unit)) + scale_.grid();
    // The part of a picture that is nested clips what lies outside of it.
    svg += fmt::format("<svg x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\" viewBox=\"{0} {1} {2} {3}\">\n", kLeft,
                       kTop, scale_.across(), scale_.high());
    svg += chart_.is_stacked ? areas() : lines();
    return svg + "</svg>\n" + dots() + levels() + marks() + "</svg>\n";
  }

 private:
  std::string points(const std::vector<ChartPoint>& of) const {
    std::string text;
    for (const auto& point : of)
      text += fmt::format("{:.1f},{:.1f} ", scale_.x(point.at(axis_)), scale_.y(point.value));
    return text;
  }

  std::string polyline(const std::vector<ChartPoint>& of, const char* kind, size_t ink) const {
    if (of.size() < 2) return "";
    return fmt::format("<polyline points=\"{}\" class=\"{}\" stroke=\"{}\"{}/>\n", points(of), kind, svg_ink(ink),
                       svg_dashes(ink));
  }

  std::string circles(const std::vector<ChartPoint>& of, size_t ink) const {
    std::string svg;
    for (const auto& point : of)
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"{}\" class=\"dot\"/>\n",
                         scale_.x(point.at(axis_)), scale_.y(point.value), svg_ink(ink));
    return svg;
  }

  std::string band(const ChartSeries& series) const {
    if (series.errors.empty() || series.line.size() < 2) return "";
    std::vector<ChartPoint> outline = series.line, lower = series.line;
    for (size_t i = 0; i < lower.size(); ++i) {
      outline[i].value += series.errors[i];
      lower[i].value -= series.errors[i];
    }
    outline.insert(outline.end(), lower.rbegin(), lower.rend());
    return fmt::format("<polygon points=\"{}\" class=\"band\" fill=\"{}\"/>\n", points(outline), svg_ink(series.ink));
  }

  std::string lines() const {
    std::string svg;
    for (const auto& series : chart_.series) svg += polyline(series.faint, "faint", series.ink) + band(series);
    for (const auto& series : chart_.series) svg += polyline(series.line, "line", series.ink);
    return svg;
  }

  std::string dots() const {
    std::string svg;
    for (const auto& series : chart_.series) {
      svg += circles(series.dots, series.ink);
      if (series.line.size() == 1) svg += circles(series.line, series.ink);
    }
    return svg;
  }

  // From the top down, so that each area covers the rest of the one above it.
  std::string areas() const {
    std::string svg;
    const auto tops = tops_of(chart_);
    for (size_t i = chart_.series.size(); i-- > 0;) {
      const ChartSeries& series = chart_.series[i];
      if (series.line.empty()) continue;
      std::vector<ChartPoint> outline = series.line;
      for (size_t j = 0; j < outline.size(); ++j) outline[j].value = tops[i][j];
      ChartPoint first = outline.front(), last = outline.back();
      first.value = last.value = 0;
      outline.push_back(last);
      outline.push_back(first);
      svg += fmt::format("<polygon points=\"{}\" class=\"area\" fill=\"{}\"/>\n", points(outline), svg_ink(series.ink));
    }
    return svg;
  }

  std::string levels() const {
    std::string svg;
    for (const auto& level : chart_.levels) {
      svg += svg_line(kLeft, scale_.y(level.value), size_.width - kRight, scale_.y(level.value), "class=\"level\"");
      svg += svg_text(size_.width - kRight - 4, scale_.y(level.value) - 5,
                      fmt::format("{} {:g}", level.name, level.value), "end", "class=\"small pale\"");
    }
    return svg;
  }

  std::string marks() const {
    std::string svg;
    const double bottom = kTop + scale_.high();
    for (const auto& mark : chart_.marks) {
      const double at = mark.at.at(axis_);
      if (!std::isfinite(at)) continue;
      const double x = std::clamp(scale_.x(at), kLeft, size_.width - kRight);
      svg += fmt::format("<path d=\"M{:.1f} {:.1f}l5 9h-10z\" class=\"mark\" fill=\"{}\"><title>{}</title></path>\n", x,
                         bottom - 9, svg_ink(mark.ink), escape_xml(mark.text));
    }
    return svg;
  }

  const Chart& chart_;
  ChartAxis axis_;
  ChartSize size_;
  Scale scale_;
};

// A share of white or of the dark ground is left for small values, so that the picture can be read in both.
std::string heat_fill(double share) {
  return fmt::format("fill-opacity=\"{:.2f}\"", 0.06 + 0.94 * (share > 0 ? std::min(share, 1.0) : 0));
}

ChartAxis usual_axis(const Chart& chart) {
  return chart.has(ChartAxis::kTokens) ? ChartAxis::kTokens : ChartAxis::kSteps;
}

constexpr double kHead = 44, kLegendRow = 18;

std::string head_of(const std::string& title, const std::string& unit) {
  return svg_text(14, 20, title, "start", "class=\"title\"") + svg_text(14, 36, unit, "start", "class=\"small pale\"");
}

}  // namespace

std::string axis_name(ChartAxis axis) {
  switch (axis) {
    case ChartAxis::kTokens: return "tokens";
    case ChartAxis::kSteps: return "steps";
    case ChartAxis::kTime: return "hours of training";
  }
  return "";
}

std::string place_text(ChartAxis axis, double value) {
  if (!std::isfinite(value)) return "";
  return axis == ChartAxis::kTime ? format_duration(value) : format_thousands(value);
}

std::optional<std::pair<double, double>> values_outside(const Chart& chart) {
  if (chart.is_stacked) return {};
  const Range shown = y_range(chart), faint = faint_range(chart, true);
  if (!(faint.low < shown.low || faint.high > shown.high)) return {};
  return std::pair(faint.low, faint.high);
}

std::string draw_chart(const Chart& chart, ChartAxis axis, const ChartSize& size) {
  return chart.has_points() ? Drawing(chart, axis, size).draw() : "";
}

std::string draw_heat_map(const HeatMap& map, ChartAxis axis, const ChartSize& size) {
  Range x;
  x.add(0);
  for (const auto& column : map.columns) x.add(column.at(axis));
  const auto [low, high] = map.scale.value_or(map.range());
  if (x.is_empty() || low > high) return "";
  const auto rows = static_cast<double>(map.values.size());
  const Scale scale(axis, size, x, {0, rows}, 6);
  const double row_height = scale.high() / rows;
  std::string svg = scale.begin(fmt::format("{}, {}", map.title, map.unit)) + scale.grid(false);
  for (size_t row = 0; row < map.values.size(); ++row) {
    const double top = kTop + static_cast<double>(row) * row_height;
    if (rows <= 16 || row % static_cast<size_t>(std::ceil(rows / 12)) == 0)
      svg += svg_text(kLeft - 7, top + row_height / 2 + 4, std::to_string(row), "end", "class=\"small\"");
    for (size_t i = 0; i < map.columns.size(); ++i) {
      const double value = map.values[row][i];
      if (!std::isfinite(value)) continue;
      const double left = i == 0 ? scale.x(0) : scale.x(map.columns[i - 1].at(axis)),
                   right = scale.x(map.columns[i].at(axis));
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"heat\" {}/>\n",
                         left, top, std::max(0.5, right - left), row_height,
                         heat_fill(high > low ? (value - low) / (high - low) : 0));
    }
  }
  return svg + "</svg>\n";
}

std::string chart_file(const Chart& chart) {
  const ChartSize size = chart.is_wide ? kWide : kNarrow;
  std::string body = head_of(chart.title, chart.unit);
  double top = kHead;
  const bool needs_legend = chart.series.size() > 1;
  for (const auto& series : chart.series) {
    if (!needs_legend) break;
    body += svg_line(kLeft, top + 5, kLeft + 22, top + 5,
                     fmt::format("stroke=\"{}\" stroke-width=\"2.5\"{}", svg_ink(series.ink), svg_dashes(series.ink)));
    body += svg_text(kLeft + 28, top + 9, end_of_name(series.name, 100));
    top += kLegendRow;
  }
  body += fmt::format("<svg y=\"{}\" width=\"{}\" height=\"{}\">\n{}</svg>\n", top, size.width, size.height,
                      draw_chart(chart, usual_axis(chart), size));
  return svg_document(size.width, top + size.height, body);
}

std::string heat_map_file(const HeatMap& map) {
  const bool has_tokens =
      std::ranges::all_of(map.columns, [](const auto& column) { return std::isfinite(column.tokens); });
  const std::string body =
      head_of(map.title, map.unit) +
      fmt::format("<svg y=\"{}\" width=\"{}\" height=\"{}\">\n{}</svg>\n", kHead, kWide.width, kWide.height,
                  draw_heat_map(map, has_tokens ? ChartAxis::kTokens : ChartAxis::kSteps, kWide));
  return svg_document(kWide.width, kHead + kWide.height, body);
}

}  // namespace athanor::inline report
