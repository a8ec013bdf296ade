#pragma once
// A training run, from its configuration to its last checkpoint.

#include <atomic>
#include <cstdint>

#include "comm/world.h"
#include "config/run_config.h"

namespace athanor {

/// Trains until train.steps, or until a signal reaches any rank. Collective over the world.
/// @param step  tells others of this process which step is underway.
/// @return 0; 143 or 130 after SIGTERM or SIGINT with everything saved; 1 if the last checkpoint could not be written.
/// @throws ConfigError, DataError, CheckpointError before step 1; Error if an update had to be refused; CommError.
int run_training(RunConfig config, comm::World& world, std::atomic<int64_t>& step);

}  // namespace athanor
