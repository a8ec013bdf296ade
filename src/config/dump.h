#pragma once
// The resolved configuration as TOML, each field under a comment that says what it means.

#include <string>

#include "config/run_config.h"

namespace athanor {

/// What `athanor config` prints and a run folder keeps; reading it back gives an equal configuration.
std::string dump_run_config(const RunConfig& config, bool with_help = true);

/// The names of all fields, "optimizer.lr", in the order of the dump.
std::vector<std::string> run_config_keys();

}  // namespace athanor
