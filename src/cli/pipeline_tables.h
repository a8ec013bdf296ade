#pragma once
// What a pipeline comes to: who has which layers, in which order microbatches pass, how long ranks wait.

#include <string>

#include "arch/layout.h"
#include "config/run_config.h"

namespace athanor {

/// Lines that begin with "# ": layers of each pipeline rank with their share of the cost, what it holds in memory
/// (where data.seq_len is known), and the schedule, as a list of actions where it is short. Empty without a pipeline.
std::string pipeline_tables(const RunConfig& config, const Layout& layout);

}  // namespace athanor
