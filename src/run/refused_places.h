#pragma once
// Checks where a run may be written: not among files that belong to something else.

#include "config/run_config.h"

namespace athanor::inline run {

/// Checks train.run_dir and the folders that contain it.
/// @throws ConfigError if train.run_dir is, or lies in, prepared data or a checkpoint; if it lies in another run; or if
/// data that the run reads lie in one of the run's folders that it writes to, replaces or removes files from.
void refuse_misplaced_run(const RunConfig& config);

/// Refuses a run that was moved or copied: its config.toml still names its old folder.
/// @param config_file  the file that the start reads.
/// @throws ConfigError if the file is the configuration in a run folder, and `config` is to run in another folder.
void refuse_moved_run(const std::string& config_file, const RunConfig& config);

}  // namespace athanor::inline run
