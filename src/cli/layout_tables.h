#pragma once
// Describes a layout on a number of ranks: its groups, each rank's state, and what a step sends.

#include <string>

#include "config/run_config.h"

namespace athanor {

/// Returns lines that begin with "# ". They show the state for every sharding, and the traffic for both named mappings
/// and for the configuration's own.
/// @throws ConfigError with all faults of the layout.
std::string layout_tables(const RunConfig& config, int num_ranks);

}  // namespace athanor
