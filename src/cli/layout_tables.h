#pragma once
// What a layout comes to on so many ranks: its groups, each rank's state, what a step sends.

#include <string>

#include "config/run_config.h"

namespace athanor {

/// Lines that begin with "# ". State is shown for every sharding, traffic for both named mappings and the
/// configuration's own. @throws ConfigError with all faults of the layout.
std::string layout_tables(const RunConfig& config, int num_ranks);

}  // namespace athanor
