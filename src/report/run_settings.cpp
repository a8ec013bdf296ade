#include "report/run_settings.h"

#include <toml++/toml.h>
#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/files.h"

namespace athanor {
namespace {

std::string toml_text(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_table<decltype(value)>)
      out << toml::toml_formatter(value);
    else if constexpr (toml::is_array<decltype(value)>)
      out << value;
    else
      out << value;
  });
  return out.str();
}

// Fields have a source position; their order in the file is what a reader knows.
void flatten(const toml::table& table, const std::string& prefix,
             std::vector<std::pair<toml::source_position, std::pair<std::string, std::string>>>& out) {
  for (const auto& [key, value] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* inner = value.as_table())
      flatten(*inner, name + ".", out);
    else
      out.push_back({value.source().begin, {name, toml_text(value)}});
  }
}

}  // namespace

RunSettings read_run_settings(const std::filesystem::path& file) {
  std::vector<std::pair<toml::source_position, std::pair<std::string, std::string>>> found;
  try {
    flatten(toml::parse(read_file(file)), "", found);
  } catch (const toml::parse_error&) {
    return {};
  } catch (const IoError&) {
    return {};
  }
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.first < b.first; });
  RunSettings settings;
  for (auto& [position, field] : found) settings.push_back(std::move(field));
  return settings;
}

std::string setting(const RunSettings& settings, const std::string& name) {
  const auto found = std::ranges::find(settings, name, &std::pair<std::string, std::string>::first);
  if (found == settings.end()) return "";
  const std::string& value = found->second;
  const bool is_quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'');
  return is_quoted ? value.substr(1, value.size() - 2) : value;
}

std::vector<SettingDifference> differences_of(const std::vector<const RunSettings*>& runs) {
  std::vector<std::string> names;
  for (const RunSettings* run : runs) {
    for (const auto& [name, value] : *run)
      if (name != "train.run_dir" && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  std::vector<SettingDifference> differences;
  for (const std::string& name : names) {
    SettingDifference difference{name, {}};
    for (const RunSettings* run : runs) {
      const auto found = std::ranges::find(*run, name, &std::pair<std::string, std::string>::first);
      difference.values.push_back(found == run->end() ? "" : found->second);
    }
    const bool differs =
        std::ranges::any_of(difference.values, [&](const auto& v) { return v != difference.values[0]; });
    if (differs) differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace athanor
