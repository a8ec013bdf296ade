#include "report/chart_html.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "plot/svg_parts.h"
#include "report/chart_svg.h"
#include "report/html.h"

namespace athanor::inline report {
namespace {

constexpr ChartAxis kAxes[] = {ChartAxis::kTokens, ChartAxis::kSteps, ChartAxis::kTime};
constexpr size_t kMostRows = 24;  // more would not be read

const char* short_name(ChartAxis axis) {
  return axis == ChartAxis::kTokens ? "tokens" : axis == ChartAxis::kSteps ? "steps" : "time";
}

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.5g}", value) : "null"; }

template <class Value>
std::string json_list(const std::vector<ChartPoint>& points, Value value) {
  std::string list;
  for (const ChartPoint& point : points) list += (list.empty() ? "" : ",") + value(point);
  return "[" + list + "]";
}

std::string json_points(const std::vector<ChartPoint>& points) {
  const auto whole = [](double value) { return std::isfinite(value) ? fmt::format("{:.0f}", value) : "null"; };
  return fmt::format("{{\"steps\":{},\"tokens\":{},\"time\":{},\"y\":{}}}",
                     json_list(points, [&](const auto& p) { return whole(p.step); }),
                     json_list(points, [&](const auto& p) { return whole(p.tokens); }),
                     json_list(points, [](const auto& p) { return number(p.seconds); }),
                     json_list(points, [](const auto& p) { return number(p.value); }));
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// What the pointer shows: smoothed values, and next to them the dots.
std::string data_of(const Chart& chart) {
  std::string series;
  const auto add = [&](const std::string& name, const std::vector<ChartPoint>& points) {
    if (points.empty()) return;
    series +=
        fmt::format("{}{{\"name\":{},\"points\":{}}}", series.empty() ? "" : ",", json_text(name), json_points(points));
  };
  for (const ChartSeries& each : chart.series) {
    add(each.name, each.line);
    add(each.name + " (every step)", each.faint);
    add(each.name + " (held out)", each.dots);
  }
  return "{\"series\":[" + series + "]}";
}

// Picks rows for a table: evenly spaced, the first and the last among them.
std::vector<size_t> rows_of(size_t count) {
  std::set<size_t> rows;
  const size_t wanted = std::min(count, kMostRows);
  for (size_t i = 0; i < wanted; ++i) rows.insert(wanted == 1 ? 0 : i * (count - 1) / (wanted - 1));
  return {rows.begin(), rows.end()};
}

HtmlTable table_of(const ChartSeries& series, const std::string& caption) {
  const bool has_errors = !series.errors.empty(), is_line = !series.line.empty();
  const auto& points = is_line ? series.line : series.dots;
  HtmlTable table{caption, {{"step", "tokens", "time", "value"}}, {}};
  if (has_errors) table.rows[0].emplace_back("standard error");
  for (const size_t i : rows_of(points.size())) {
    const ChartPoint& point = points[i];
    table.rows.push_back({place_text(ChartAxis::kSteps, point.step), place_text(ChartAxis::kTokens, point.tokens),
                          place_text(ChartAxis::kTime, point.seconds), fmt::format("{:.5g}", point.value)});
    if (has_errors) table.rows.back().push_back(fmt::format("{:.3g}", series.errors[i]));
  }
  return table;
}

std::string tables_of(const Chart& chart) {
  std::string tables;
  for (const ChartSeries& series : chart.series) {
    if (series.line.empty() && series.dots.empty()) continue;
    tables += html_table(table_of(series, series.name));
    ChartSeries held_out = series;
    held_out.line.clear();
    if (!series.line.empty() && !series.dots.empty())
      tables += html_table(table_of(held_out, series.name + ", held-out text"));
  }
  return html_details("Table of " + chart.title, tables);
}

template <class Draw>
std::string pictures(bool is_wide, const Draw& draw) {
  std::string html;
  for (const ChartAxis axis : kAxes) {
    const std::string narrow = draw(axis, kNarrow);
    if (narrow.empty()) continue;
    html += fmt::format("<div class=\"axis {}\">", short_name(axis));
    if (is_wide) html += fmt::format("<div class=\"broad\">{}</div>", draw(axis, kWide));
    html += fmt::format("<div class=\"{}\">{}</div></div>\n", is_wide ? "slim" : "any", narrow);
  }
  return html;
}

std::string head(const std::string& title, const std::string& unit) {
  return fmt::format("<figcaption><h3>{}</h3><span class=\"unit\">{}</span></figcaption>\n", escape_xml(title),
                     escape_xml(unit));
}

std::string note_of(const std::string& note) {
  return note.empty() ? "" : fmt::format("<p class=\"note\">{}</p>\n", escape_xml(note));
}

// The note of a chart, and what its picture cuts off.
std::string with_outside(const Chart& chart) {
  const auto outside = values_outside(chart);
  if (!outside) return chart.note;
  return fmt::format("{}{}Single steps lie outside of the picture: all are between {:.4g} and {:.4g}.", chart.note,
                     chart.note.empty() ? "" : " ", outside->first, outside->second);
}

// Axes of which something is not known show the steps in their place.
ChartAxis known_axis(const Chart& chart, ChartAxis axis) { return chart.has(axis) ? axis : ChartAxis::kSteps; }

}  // namespace

std::string chart_figure(const Chart& chart, const std::string& id) {
  std::vector<std::pair<std::string, size_t>> names;
  for (const ChartSeries& series : chart.series)
    if (!series.line.empty() || !series.dots.empty()) names.emplace_back(series.name, series.ink);
  const auto draw = [&](ChartAxis axis, const ChartSize& size) {
    return draw_chart(chart, known_axis(chart, axis), size);
  };
  return fmt::format("<figure id=\"{0}\" class=\"{1}\" data-values=\"{0}-data\">\n", escape_xml(id),
                     chart.is_wide ? "wide" : "") +
         head(chart.title, chart.unit) + (names.size() > 1 ? html_legend(names) : "") +
         "<div class=\"pictures\" tabindex=\"0\" role=\"group\" aria-label=\"" +
         escape_xml(chart.title + "; arrow keys move through its values") + "\">" + pictures(chart.is_wide, draw) +
         "</div>\n" + note_of(with_outside(chart)) + tables_of(chart) + html_data(id + "-data", data_of(chart)) +
         "</figure>\n";
}

std::string heat_map_figure(const HeatMap& map, const std::string& id) {
  const bool has_tokens =
      std::ranges::all_of(map.columns, [](const auto& column) { return std::isfinite(column.tokens); });
  const auto draw = [&](ChartAxis axis, const ChartSize& size) {
    return draw_heat_map(map, axis == ChartAxis::kTokens && !has_tokens ? ChartAxis::kSteps : axis, size);
  };
  HtmlTable table{map.title, {{"step"}}, {}};
  for (size_t row = 0; row < map.values.size(); ++row) table.rows[0].push_back(fmt::format("{} {}", map.row_name, row));
  const auto [low, high] = map.range();
  const auto scale = map.scale.value_or(map.range());
  for (const size_t column : rows_of(map.columns.size())) {
    table.rows.push_back({place_text(ChartAxis::kSteps, map.columns[column].step)});
    for (const auto& row : map.values)
      table.rows.back().push_back(std::isfinite(row[column]) ? fmt::format("{:.3g}", row[column]) : "");
  }
  std::string note = low <= high
                         ? fmt::format(
                               "The palest colour is {:.3g}, the darkest {:.3g} ({}); the values are from {:.3g} to "
                               "{:.3g}. Rows are {}s, from 0 at the top; a field is the mean over its steps.",
                               scale.first, scale.second, map.unit, low, high, map.row_name)
                         : "";
  std::string values;
  for (const auto& row : map.values) {
    std::string list;
    for (const double value : row) list += (list.empty() ? "" : ",") + number(value);
    values += (values.empty() ? "[" : ",[") + list + "]";
  }
  const std::string data = fmt::format("{{\"rows\":[{}],\"row\":{},\"points\":{}}}", values, json_text(map.row_name),
                                       json_points(map.columns));
  return fmt::format("<figure id=\"{0}\" class=\"wide\" data-values=\"{0}-data\">\n", escape_xml(id)) +
         head(map.title, map.unit) + "<div class=\"pictures\">" + pictures(true, draw) + "</div>\n" + note_of(note) +
         html_details("Table of " + map.title, html_table(table)) + html_data(id + "-data", data) + "</figure>\n";
}

}  // namespace athanor::inline report
