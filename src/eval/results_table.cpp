#include "eval/results_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>

namespace athanor::inline eval {
namespace {

using Json = nlohmann::ordered_json;

struct Value {
  double value = 0;
  std::optional<double> stderr_;
};

struct Row {
  std::string task, metric;
  bool operator==(const Row&) const = default;
};

const Json* find(const Json& results, const std::string& task) {
  for (const char* part : {"results", "groups"}) {
    if (results.contains(part) && results[part].contains(task)) return &results[part][task];
  }
  return nullptr;
}

// "acc,none" → acc. Nothing for errors and counts.
std::optional<std::string> metric_of(const std::string& key) {
  const size_t comma = key.find(',');
  if (comma == std::string::npos || key.substr(0, comma).ends_with("_stderr")) return std::nullopt;
  return key.substr(0, comma);
}

std::optional<Value> value_of(const Json& results, const Row& row) {
  const Json* task = find(results, row.task);
  if (!task) return std::nullopt;
  for (const auto& [key, value] : task->items()) {
    if (metric_of(key) != row.metric || !value.is_number()) continue;
    Value score{value.get<double>(), std::nullopt};
    const std::string error = row.metric + "_stderr" + key.substr(key.find(','));
    if (task->contains(error) && (*task)[error].is_number()) score.stderr_ = (*task)[error].get<double>();
    return score;
  }
  return std::nullopt;
}

// Tasks of large groups; such a group has its own row.
std::set<std::string> hidden_tasks(const Json& results, size_t most_of_group) {
  std::set<std::string> hidden;
  if (!results.contains("group_subtasks")) return hidden;
  for (const auto& [group, tasks] : results["group_subtasks"].items()) {
    if (tasks.size() <= most_of_group || !results.contains("groups") || !results["groups"].contains(group)) continue;
    for (const auto& task : tasks) hidden.insert(task.get<std::string>());
  }
  return hidden;
}

void add_rows(const Json& results, const std::set<std::string>& hidden, std::vector<Row>& rows) {
  std::vector<std::string> tasks;
  for (const char* part : {"groups", "results"}) {
    if (!results.contains(part)) continue;
    for (const auto& [task, metrics] : results[part].items())
      if (!hidden.contains(task)) tasks.push_back(task);
  }
  for (const std::string& task : tasks) {
    for (const auto& [key, value] : find(results, task)->items()) {
      const auto metric = metric_of(key);
      if (!metric || !value.is_number()) continue;
      if (const Row row{task, *metric}; std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
    }
  }
}

std::string text_of(const std::optional<Value>& value) {
  if (!value) return "–";
  const bool small = value->value < 10;
  std::string text = fmt::format("{:.{}f}", value->value, small ? 4 : 2);
  if (value->stderr_) text += fmt::format(" ± {:.4f}", *value->stderr_);
  return text;
}

// Columns of a terminal, not bytes: "±" and "–" are one each.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string lay_out(const std::vector<std::vector<std::string>>& lines, size_t left_columns) {
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], width_of(line[c]));
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (size_t c = 0; c < line.size(); ++c) {
      const std::string pad(widths[c] - width_of(line[c]), ' ');
      row += (c > 0 ? "  " : "") + (c < left_columns ? line[c] + pad : pad + line[c]);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace

std::string results_table(const std::vector<NamedResults>& models, const Json& chance, size_t most_of_group) {
  std::set<std::string> hidden;
  for (const auto& model : models) hidden.merge(hidden_tasks(model.results, most_of_group));
  std::vector<Row> rows;
  for (const auto& model : models) add_rows(model.results, hidden, rows);
  std::vector<std::vector<std::string>> lines = {{"task", "metric", "chance"}};
  for (const auto& model : models) lines[0].push_back(model.name);
  for (const Row& row : rows) {
    const bool has_chance = chance.contains(row.task) && row.metric.starts_with("acc");
    lines.push_back({row.task, row.metric, has_chance ? fmt::format("{:.4f}", chance[row.task].get<double>()) : ""});
    for (const auto& model : models) lines.back().push_back(text_of(value_of(model.results, row)));
  }
  return lay_out(lines, 2);
}

}  // namespace athanor::inline eval
