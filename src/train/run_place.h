#pragma once
// Where a run may be written: not among files that something else keeps.

#include "config/run_config.h"

namespace athanor {

/// Looks at train.run_dir and at the folders around it.
/// @throws ConfigError where it is, or lies in, prepared data, a checkpoint or another run, or where data that the run
///         reads lie in folders of its own that it writes, replaces or removes files in.
void refuse_misplaced_run(const RunConfig& config);

}  // namespace athanor
