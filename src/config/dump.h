#pragma once
// Writes the resolved configuration as TOML, each field under a comment that explains it.

#include <string>
#include <utility>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline config {

/// Returns the TOML text that `athanor config` prints and a run folder keeps. Reading it back gives an equal
/// configuration.
/// @param with_help  write the comments that explain the fields.
std::string dump_run_config(const RunConfig& config, bool with_help = true);

/// Returns name ("optimizer.lr") and value, as TOML, of all fields except those of list items, in the order of the
/// dump.
std::vector<std::pair<std::string, std::string>> run_config_values(const RunConfig& config);

/// Returns the names of all fields ("optimizer.lr") except those of list items, in the order of the dump.
std::vector<std::string> run_config_keys();

}  // namespace athanor::inline config
