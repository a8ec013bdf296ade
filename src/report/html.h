#pragma once
// Elements of a page. Every text that comes from a run is escaped here.

#include <string>
#include <utility>
#include <vector>

namespace athanor::inline report {

/// A table; its first row is its head, and the first cell of each row names the row.
struct HtmlTable {
  std::string caption;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::pair<size_t, size_t>> pale;  ///< cells (row, column) that are shown pale
};

std::string html_table(const HtmlTable& table);
/// A part that is folded until the reader opens it.
std::string html_details(const std::string& summary, const std::string& content);
/// A key of colours: which line is which.
std::string html_legend(const std::vector<std::pair<std::string, size_t>>& names_and_inks);
/// A script element with data, which nothing in a text can leave.
std::string html_data(const std::string& id, const std::string& json);

}  // namespace athanor::inline report
