#pragma once
// Where a run may be written: not among files that something else keeps.

#include "config/run_config.h"

namespace athanor {

/// Looks at train.run_dir and at the folders around it.
/// @throws ConfigError where it is, or lies in, prepared data, a checkpoint or another run, or where data that the run
///         reads lie in folders of its own that it writes, replaces or removes files in.
void refuse_misplaced_run(const RunConfig& config);

/// A run that was moved or copied still names its old place in its config.toml. @param config_file  that a start reads.
/// @throws ConfigError if it is the configuration that a run folder keeps, and `config` is to run in another folder.
void refuse_moved_run(const std::string& config_file, const RunConfig& config);

}  // namespace athanor
