#include "report/run_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/files.h"
#include "config/toml_values.h"

namespace athanor::inline report {
namespace {

constexpr std::string_view kConfigPrefix = "config-";

}  // namespace

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

std::vector<EarlierSettings> read_earlier_settings(const std::filesystem::path& configs) {
  std::vector<EarlierSettings> earlier;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(configs, ignored)) {
    const std::string name = entry.path().filename().string();  // config-003.toml
    int64_t attempt = 0;
    const char* digits = name.data() + std::min(name.size(), kConfigPrefix.size());
    const auto [end, error] = std::from_chars(digits, name.data() + name.size(), attempt);
    if (name.starts_with(kConfigPrefix) && error == std::errc() && std::string_view(end) == ".toml")
      earlier.push_back({attempt, read_run_settings(entry.path())});
  }
  std::ranges::sort(earlier, {}, &EarlierSettings::last_attempt);
  return earlier;
}

namespace {

std::string value_in(const std::string& name, const RunSettings& settings) {
  const auto found = std::ranges::find(settings, name, &std::pair<std::string, std::string>::first);
  return found == settings.end() ? "" : found->second;
}

}  // namespace

std::string value_by_attempt(const std::string& name, const std::vector<EarlierSettings>& earlier,
                             const RunSettings& last) {
  std::string text, value = value_in(name, last);
  for (size_t i = 0; i < earlier.size(); ++i) {
    const std::string here = value_in(name, earlier[i].settings),
                      next = i + 1 < earlier.size() ? value_in(name, earlier[i + 1].settings) : value;
    if (here != next)
      text += fmt::format("{} (up to attempt {}), ", here.empty() ? "absent" : here, earlier[i].last_attempt);
  }
  return text.empty() ? value : text + fmt::format("{} (since)", value.empty() ? "absent" : value);
}

std::vector<SettingDifference> differences_of(const std::vector<SettingsOfRun>& runs) {
  std::vector<std::string> names;
  const auto add_names = [&](const RunSettings& settings) {
    for (const auto& [name, value] : settings)
      if (name != "train.run_dir" && std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const SettingsOfRun& run : runs) {
    add_names(*run.last);
    for (const EarlierSettings& each : *run.earlier) add_names(each.settings);
  }
  std::vector<SettingDifference> differences;
  for (const std::string& name : names) {
    SettingDifference difference{name, {}};
    bool differs = false;
    for (const SettingsOfRun& run : runs) {
      difference.values.push_back(value_by_attempt(name, *run.earlier, *run.last));
      differs = differs || difference.values.back() != value_in(name, *runs.front().last);
    }
    if (differs) differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace athanor::inline report
