#include "config/toml_values.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "config/bounded_toml.h"

namespace athanor::inline config {
namespace {

struct PlacedValue {
  toml::source_position place;
  std::string name, value;
};

// Writes a value as the dump writes it: numbers in the shortest form that reads back as the same bits.
std::string text_of(const toml::node& node) {
  if (const auto* number = node.as_floating_point()) {
    const std::string text = fmt::format("{}", number->get());
    return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
  }
  if (const auto* name = node.as_string()) return "\"" + name->get() + "\"";
  if (const auto* array = node.as_array()) {
    std::vector<std::string> items;
    for (const auto& item : *array) items.push_back(text_of(item));
    return "[" + join(items) + "]";
  }
  std::ostringstream text;
  node.visit([&](const auto& concrete) { text << concrete; });
  return text.str();
}

void flatten(const toml::node& node, const std::string& name, std::vector<PlacedValue>& values) {
  if (const auto* table = node.as_table()) {
    for (const auto& [key, child] : *table)
      flatten(child, (name.empty() ? "" : name + ".") + std::string(key.str()), values);
    return;
  }
  const auto* array = node.as_array();
  if (array && !array->empty() && array->is_homogeneous(toml::node_type::table)) {
    for (size_t i = 0; i < array->size(); ++i) flatten(*array->get(i), fmt::format("{}[{}]", name, i), values);
    return;
  }
  values.push_back({node.source().begin, name, text_of(node)});
}

}  // namespace

std::vector<std::pair<std::string, std::string>> toml_values(std::string_view toml_text) {
  std::vector<PlacedValue> found;
  const toml::table root = parse_bounded_toml(toml_text);
  flatten(root, "", found);
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.place < b.place; });
  std::vector<std::pair<std::string, std::string>> values;
  for (auto& each : found) values.emplace_back(std::move(each.name), std::move(each.value));
  return values;
}

}  // namespace athanor::inline config
