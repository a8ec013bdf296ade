#include "report/run_settings.h"

#include <algorithm>
#include <stdexcept>

#include "base/files.h"
#include "config/toml_values.h"

namespace athanor {

RunSettings read_run_settings(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return {};
  const std::string text = read_file(file);
  try {
    return toml_values(text);
  } catch (const std::runtime_error&) {  // no TOML
    return {};
  }
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
