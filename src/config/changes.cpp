#include "config/changes.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "config/bounded_toml.h"
#include "config/dump.h"
#include "config/toml_values.h"

namespace athanor::inline config {
namespace {

// The value of each field as text, by its name, such as "train.stages[1].lr".
using Values = std::map<std::string, std::string>;

Values values_of(std::string_view toml_text) {
  Values values;
  for (auto& [name, value] : toml_values(toml_text)) values[name] = std::move(value);
  return values;
}

// Returns the value that a field has if the user wrote none. Fields of lists of tables have no such value.
std::string shown(const Values& values, const std::string& name, const Values& defaults) {
  if (const auto found = values.find(name); found != values.end()) return found->second;
  const auto found = defaults.find(name);
  return found == defaults.end() ? "absent" : found->second;
}

}  // namespace

std::vector<std::string> describe_config_changes(std::string_view before, const RunConfig& now) {
  const Values defaults = values_of(dump_run_config(RunConfig{}, false)), is = values_of(dump_run_config(now, false));
  Values was = {};
  try {
    was = values_of(before);
  } catch (const toml::parse_error& error) {
    return {fmt::format("the configuration before cannot be read ({})", std::string(error.description()))};
  }
  std::vector<std::string> names = run_config_keys();  // fields of lists of tables come last
  std::set<std::string> named(names.begin(), names.end());
  for (const Values* values : {static_cast<const Values*>(&was), &is}) {
    for (const auto& [name, value] : *values) {
      const bool of_a_list = name.find("].") != std::string::npos;
      if (of_a_list && named.insert(name).second) names.push_back(name);
    }
  }
  std::vector<std::string> lines;
  for (const std::string& name : names) {
    const std::string there = shown(was, name, defaults), here = shown(is, name, defaults);
    if (there != here) lines.push_back(fmt::format("{} was {}, is {}", name, there, here));
  }
  return lines;
}

std::vector<ConfigTextDifference> config_text_differences(std::string_view a, std::string_view b) {
  if (a == b) return {};
  const auto read = [](std::string_view text) -> std::optional<Values> {
    try {
      return values_of(text);
    } catch (const toml::parse_error&) {
      return std::nullopt;
    }
  };
  const auto in_a = read(a), in_b = read(b);
  if (!in_a || !in_b) {
    const auto kind = [](const auto& values) { return values ? "a configuration" : "not TOML"; };
    return {{"text", kind(in_a), kind(in_b)}};
  }
  const Values defaults = values_of(dump_run_config(RunConfig{}, false));
  std::set<std::string> names;
  for (const Values* values : {&*in_a, &*in_b})
    for (const auto& [name, value] : *values) names.insert(name);
  std::vector<ConfigTextDifference> rows;
  for (const auto& name : names) {
    const std::string there = shown(*in_a, name, defaults), here = shown(*in_b, name, defaults);
    if (there != here) rows.push_back({name, there, here});
  }
  return rows;
}

}  // namespace athanor::inline config
