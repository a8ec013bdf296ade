#pragma once
// Describes a pipeline: which rank has which layers, in which order microbatches pass, and how long ranks wait.

#include <string>

#include "config/run_config.h"
#include "layout/layout.h"

namespace athanor::inline cli {

/// Returns lines that begin with "#": the layers of each pipeline rank (from 0) with their share of the FLOPs, what the
/// rank holds in memory (if data.seq_len is known), and the schedule, with its list of actions if that is short. Empty
/// without a pipeline.
std::string pipeline_tables(const RunConfig& config, const Layout& layout);

}  // namespace athanor::inline cli
