#pragma once
// TOML + --set → RunConfig. All mistakes are found at once, each with its file, line and column.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// More that may be wrong with a configuration whose values are possible, a line each: its layout on a job's ranks.
using FindMore = std::function<std::vector<std::string>(const RunConfig& config)>;

/// Reads a run configuration and applies `--set a.b=c` overrides in order.
/// @param more  is told together with what this finds by itself.
/// @throws ConfigError listing every unknown key (with the nearest name), mistyped or impossible value, one on a line.
RunConfig load_run_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {},
                          const FindMore& more = {});

/// The same from text; `name` stands where a file's path would.
RunConfig parse_run_config(std::string_view toml, const std::string& name,
                           const std::vector<std::string>& overrides = {}, const FindMore& more = {});

}  // namespace athanor
