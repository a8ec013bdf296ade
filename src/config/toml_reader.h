#pragma once
// Reads a RunConfig from TOML and --set overrides. All mistakes in single fields are reported at once, each with file,
// line and column. If there are none, all contradictions between fields are reported at once, with the file only.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline config {

/// Returns a line for each further fault of a configuration whose single values are valid, such as a fault of its
/// layout on a job's ranks; it may first choose what is not set (fit_to_ranks, layout/fitted_batch.h).
using FindMore = std::function<std::vector<std::string>(RunConfig& config)>;

/// Reads a run configuration, applies the overrides ("a.b=c", as in --set) in order, and fills in the defaults that
/// follow from other fields (defaults.h).
/// @param more  finds further faults, which are reported together with contradictions between fields.
/// @param swept  values of optimizer.name that the same file and overrides are read for, one after another: an option
///               that only others of these optimizers have is no contradiction, and has its default.
/// @throws ConfigError listing every unknown key (with the nearest name) and every mistyped or impossible value, one on
///         a line; IoError if the file cannot be read.
RunConfig load_run_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {},
                          const FindMore& more = {}, const std::vector<std::string>& swept = {});

/// Reads a configuration from text as load_run_config does from a file. @param name  replaces its path in messages;
/// the name of an option ("--then") also replaces "--set".
RunConfig parse_run_config(std::string_view toml, const std::string& name,
                           const std::vector<std::string>& overrides = {}, const FindMore& more = {},
                           const std::vector<std::string>& swept = {});

}  // namespace athanor::inline config
