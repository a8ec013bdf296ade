#pragma once
// TOML + --set → RunConfig. All mistakes are found at once, each with its file, line and column.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// Reads a run configuration and applies `--set a.b=c` overrides in order.
/// @throws ConfigError listing every unknown key (with the nearest name), mistyped or impossible value, one on a line.
RunConfig load_run_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});

/// The same from text; `name` stands where a file's path would.
RunConfig parse_run_config(std::string_view toml, const std::string& name,
                           const std::vector<std::string>& overrides = {});

}  // namespace athanor
