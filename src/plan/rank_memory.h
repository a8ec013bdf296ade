#pragma once
// The memory that a rank of a run will take on its host, by a played step.

#include "config/run_config.h"
#include "layout/memory.h"

namespace athanor::inline plan {

/// Returns what `rank` will take on CPUs such as those of this process: its matrix products take this process's paths
/// and threads. Experts get an even share of the tokens. Where a step cannot be played, formulas estimate it, and a
/// line is logged.
/// @param config  resolved: data.seq_len is set and the model's fields are filled in.
/// @throws ConfigError with every fault of the layout.
MemoryNeed memory_of_rank(const RunConfig& config, const Layout& layout, int rank);

}  // namespace athanor::inline plan
