#pragma once
// The configuration of a run as a list of names and values, whatever version wrote it, and how those of runs differ.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace athanor {

/// Each field with its value as TOML, in the order of the file: {"model.hidden_size", "256"}.
using RunSettings = std::vector<std::pair<std::string, std::string>>;

/// Returns the fields of a config.toml; none if the file is missing or is no TOML.
RunSettings read_run_settings(const std::filesystem::path& file);

/// Returns the value of a field without the quotes of a text; "" if there is none.
std::string setting(const RunSettings& settings, const std::string& name);

/// A field that is not the same in all runs, with its value in each; "" where a run lacks it.
struct SettingDifference {
  std::string name;
  std::vector<std::string> values;
};

/// Returns the fields that differ, in the order of the first run that has them. Places (train.run_dir) do not count.
std::vector<SettingDifference> differences_of(const std::vector<const RunSettings*>& runs);

}  // namespace athanor
