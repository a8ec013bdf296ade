#include "report/html.h"

#include <fmt/core.h>

#include <algorithm>

#include "plot/svg_parts.h"

namespace athanor::inline report {

std::string html_table(const HtmlTable& table) {
  std::string html = "<div class=\"scroll\"><table>";
  if (!table.caption.empty()) html += fmt::format("<caption>{}</caption>", escape_xml(table.caption));
  for (size_t row = 0; row < table.rows.size(); ++row) {
    html += row == 0 ? "<thead><tr>" : "<tr>";
    for (size_t column = 0; column < table.rows[row].size(); ++column) {
      const std::string text = escape_xml(table.rows[row][column]);
      const bool is_pale = std::ranges::find(table.pale, std::pair(row, column)) != table.pale.end();
      if (row == 0)
        html += fmt::format("<th scope=\"col\">{}</th>", text);
      else if (column == 0)
        html += fmt::format("<th scope=\"row\">{}</th>", text);
      else
        html += fmt::format("<td{}>{}</td>", is_pale ? " class=\"pale\"" : "", text);
    }
    html += row == 0 ? "</tr></thead><tbody>\n" : "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string html_details(const std::string& summary, const std::string& content) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", escape_xml(summary), content);
}

std::string html_legend(const std::vector<std::pair<std::string, size_t>>& names_and_inks) {
  std::string html = "<ul class=\"legend\">";
  for (const auto& [name, ink] : names_and_inks)
    html += fmt::format(
        "<li><svg width=\"22\" height=\"10\" aria-hidden=\"true\"><line x1=\"0\" y1=\"5\" x2=\"22\" y2=\"5\" "
        "stroke=\"{}\" stroke-width=\"3\"{}/></svg>{}</li>",
        svg_ink(ink), svg_dashes(ink), escape_xml(name));
  return html + "</ul>\n";
}

std::string html_data(const std::string& id, const std::string& json) {
  std::string safe;
  for (const char c : json) safe += c == '<' ? "\\u003c" : std::string(1, c);
  return fmt::format("<script type=\"application/json\" id=\"{}\">{}</script>\n", escape_xml(id), safe);
}

}  // namespace athanor::inline report
