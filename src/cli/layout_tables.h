#pragma once
// Describes a layout on a number of ranks: its groups, each rank's state, and what a step sends.

#include <string>

#include "config/run_config.h"

namespace athanor::inline cli {

/// Returns lines that begin with "#": the degrees and the groups, the pipeline (pipeline_tables.h), the bytes of state
/// of a rank for every sharding, and the bytes that all ranks send in a step for both named mappings and for the
/// configuration's own. If the model comes from a folder that was not read yet, there are the degrees only.
/// @throws ConfigError with all faults of the layout.
std::string layout_tables(const RunConfig& config, int num_ranks);

}  // namespace athanor::inline cli
