#pragma once
// Describes a layout on a number of ranks: its groups, its pipeline, each rank's state, and what a step sends.

#include <string>
#include <vector>

#include "config/run_config.h"
#include "layout/layout.h"
#include "layout/memory.h"

namespace athanor::inline cli {

/// Returns lines that begin with "#": the degrees and the groups, the pipeline (pipeline_tables), and the bytes of
/// state of a rank for every sharding. Then the bytes that all ranks send in a step, for both named mappings and for
/// the configuration's own. If the model comes from a folder that was not read yet, there are the degrees only.
/// @throws ConfigError with all faults of the layout.
std::string layout_tables(const RunConfig& config, int num_ranks);

/// Returns lines that begin with "#": the layers of each pipeline rank (from 0) with their share of the FLOPs, and what
/// the rank holds in memory (`needs`, for each pipeline rank; empty: that is not known). Then the schedule, with its
/// list of actions if that is short. Empty without a pipeline.
std::string pipeline_tables(const RunConfig& config, const Layout& layout, const std::vector<MemoryNeed>& needs);

}  // namespace athanor::inline cli
