#include "report/figure_html.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "plot/figure_notes.h"
#include "plot/svg_chart.h"
#include "plot/svg_parts.h"
#include "report/html.h"

namespace athanor::inline report {
namespace {

constexpr ChartSize kNarrow{420, 250}, kWide{1160, 360};
constexpr size_t kMostRows = 24;  // more would not be read

// ---- Values for the pointer ----------------------------------------------------------------------------------------

template <class List, class Text>
std::string json_list(const List& list, Text text) {
  std::string json;
  for (const auto& each : list) json += (json.empty() ? "" : ",") + text(each);
  return "[" + json + "]";
}

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.5g}", value) : "null"; }

std::string json_points(const std::vector<Point>& points) {
  const auto whole = [](double value) { return std::isfinite(value) ? fmt::format("{:.0f}", value) : "null"; };
  return fmt::format("{{\"steps\":{},\"tokens\":{},\"time\":{},\"y\":{}}}",
                     json_list(points, [&](const Point& point) { return whole(point.x); }),
                     json_list(points, [&](const Point& point) { return whole(point.tokens); }),
                     json_list(points, [](const Point& point) { return number(point.seconds); }),
                     json_list(points, [](const Point& point) { return number(point.y); }));
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Returns smoothed values, and next to them the dots; or the rows of a heat map.
std::string data_of(const Figure& figure) {
  if (const HeatMap& map = figure.heat_map; figure.is_heat_map())
    return fmt::format("{{\"rows\":{},\"row\":{},\"points\":{}}}",
                       json_list(map.values, [](const auto& row) { return json_list(row, number); }),
                       json_text(map.row_name), json_points(map.columns));
  std::string series;
  const auto add = [&](const std::string& name, const std::vector<Point>& points) {
    if (points.empty()) return;
    series +=
        fmt::format("{}{{\"name\":{},\"points\":{}}}", series.empty() ? "" : ",", json_text(name), json_points(points));
  };
  for (const Curve& curve : figure.curves) {
    add(curve.name, curve.line);
    add(curve.name + " (every step)", curve.faint);
    add(fmt::format("{} ({})", curve.name, curve.dots_name), curve.dots);
  }
  return "{\"series\":[" + series + "]}";
}

// ---- Tables --------------------------------------------------------------------------------------------------------

// Picks rows for a table: evenly spaced, the first and the last among them.
std::set<size_t> rows_of(size_t count) {
  std::set<size_t> rows;
  const size_t wanted = std::min(count, kMostRows);
  for (size_t i = 0; i < wanted; ++i) rows.insert(wanted == 1 ? 0 : i * (count - 1) / (wanted - 1));
  return rows;
}

std::string table_of(const std::vector<Point>& points, const std::string& caption) {
  if (points.empty()) return "";
  const bool has_errors = std::ranges::any_of(points, [](const Point& point) { return point.error > 0; });
  HtmlTable table{caption, {{"step", "tokens", "time", "value"}}, {}};
  if (has_errors) table.rows[0].emplace_back("standard error");
  for (const size_t i : rows_of(points.size())) {
    auto& row = table.rows.emplace_back();
    for (const XAxis axis : {XAxis::kSteps, XAxis::kTokens, XAxis::kTime})
      row.push_back(place_text(axis, points[i].at(axis)));
    row.push_back(fmt::format("{:.5g}", points[i].y));
    if (has_errors) row.push_back(fmt::format("{:.3g}", points[i].error));
  }
  return html_table(table);
}

std::string table_of(const HeatMap& map, const std::string& caption) {
  HtmlTable table{caption, {{"step"}}, {}};
  for (size_t row = 0; row < map.values.size(); ++row) table.rows[0].push_back(fmt::format("{} {}", map.row_name, row));
  for (const size_t column : rows_of(map.columns.size())) {
    table.rows.push_back({place_text(XAxis::kSteps, map.columns[column].x)});
    for (const auto& row : map.values)
      table.rows.back().push_back(std::isfinite(row[column]) ? fmt::format("{:.3g}", row[column]) : "");
  }
  return html_table(table);
}

std::string tables_of(const Figure& figure) {
  std::string tables;
  if (figure.is_heat_map()) tables = table_of(figure.heat_map, figure.title);
  for (const Curve& curve : figure.curves)
    tables += table_of(curve.line, curve.name) + table_of(curve.dots, curve.name + ", " + curve.dots_name);
  return html_details("Table of " + figure.title, tables);
}

// ---- Pictures ------------------------------------------------------------------------------------------------------

std::string pictures(const Figure& figure) {
  std::string html;
  for (const XAxis choice : {XAxis::kTokens, XAxis::kSteps, XAxis::kTime}) {
    const XAxis axis = figure.has(choice) ? choice : XAxis::kSteps;
    html += fmt::format("<div class=\"axis {}\">", name_of(choice));
    if (figure.is_wide) html += fmt::format("<div class=\"broad\">{}</div>", draw_chart(figure, axis, kWide));
    html += fmt::format("<div class=\"{}\">{}</div></div>\n", figure.is_wide ? "slim" : "any",
                        draw_chart(figure, axis, kNarrow));
  }
  return html;
}

std::string legend_of(const Figure& figure) {
  std::vector<std::pair<std::string, size_t>> names;
  for (const Curve& curve : figure.curves)
    if (curve.has_points()) names.emplace_back(curve.name, curve.ink);
  return names.size() > 1 ? html_legend(names) : "";
}

}  // namespace

std::string place_text(XAxis axis, double value) {
  if (!std::isfinite(value)) return "";
  return axis == XAxis::kTime ? format_duration(value) : format_thousands(value);
}

std::string figure_html(const Figure& figure, const std::string& id) {
  std::string html = fmt::format(
      "<figure id=\"{0}\" class=\"{1}\" data-values=\"{0}-data\">\n<figcaption><h3>{2}</h3><span "
      "class=\"unit\">{3}</span></figcaption>\n",
      escape_xml(id), figure.is_wide ? "wide" : "", escape_xml(figure.title), escape_xml(figure.unit));
  html += legend_of(figure) + "<div class=\"pictures\"";
  if (!figure.is_heat_map())
    html += fmt::format(" tabindex=\"0\" role=\"group\" aria-label=\"{}; arrow keys move through its values\"",
                        escape_xml(figure.title));
  html += ">" + pictures(figure) + "</div>\n";
  const std::string notes = join(notes_of(figure), " ");
  if (!notes.empty()) html += fmt::format("<p class=\"note\">{}</p>\n", escape_xml(notes));
  return html + tables_of(figure) + html_data(id + "-data", data_of(figure)) + "</figure>\n";
}

}  // namespace athanor::inline report
