#pragma once
// Decides whether a start of a run is another branch of it, or the same command once more. A branch is a sequence of
// steps that were taken one after the other; a run that goes back to an older checkpoint begins another branch there.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline saves {

/// Returns the differences from the previous attempt's configuration (config.toml) that change what is learnt:
/// "optimizer.lr was 0.002, is 0.001". Empty if there are none, or if there is no previous attempt whose configuration
/// can be read.
///
/// Fields that a requeued job may change do not count: how long the run lasts, its ranks and threads, its place on
/// disk, how often it saves and validates, its evaluations. Fields that only a start fills in do not count either: a
/// sequence length taken from the data, a warm-up that the user did not set.
std::vector<std::string> changes_of_branch(const RunConfig& config);

}  // namespace athanor::inline saves
