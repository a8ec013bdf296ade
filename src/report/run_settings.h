#pragma once
// The configuration of a run as a list of names and values, whatever version wrote it, and how those of runs differ.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace athanor::inline report {

/// Each field with its value as TOML, in the order of the file: {"model.hidden_size", "256"}.
using RunSettings = std::vector<std::pair<std::string, std::string>>;

/// Returns the fields of a config.toml; none if the file is missing or is no TOML.
RunSettings read_run_settings(const std::filesystem::path& file);

/// Returns the value of a field without the quotes of a text; "" if there is none.
std::string setting(const RunSettings& settings, const std::string& name);

/// The settings of the attempts up to one, which the next attempt changed.
struct EarlierSettings {
  int64_t last_attempt;
  RunSettings settings;
};

/// Returns what RUN/configs/ has, by attempt; files with other names are left out, a missing folder has none.
std::vector<EarlierSettings> read_earlier_settings(const std::filesystem::path& configs);

/// Returns the value of a field in each attempt of a run: "2000 (up to attempt 3), 4000 (since)"; as TOML, "" where an
/// attempt lacks it.
std::string value_by_attempt(const std::string& name, const std::vector<EarlierSettings>& earlier,
                             const RunSettings& last);

/// A field that is not the same in all runs and attempts, with its values in each run (value_by_attempt).
struct SettingDifference {
  std::string name;
  std::vector<std::string> values;
};

/// The settings of a run over all its attempts.
struct SettingsOfRun {
  const std::vector<EarlierSettings>* earlier;
  const RunSettings* last;
};

/// Returns the fields that differ, in the order of the first run that has them. Places (train.run_dir) do not count.
std::vector<SettingDifference> differences_of(const std::vector<SettingsOfRun>& runs);

}  // namespace athanor::inline report
