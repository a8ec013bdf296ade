#pragma once
// A training run, from its configuration to its last checkpoint.

#include "comm/world.h"
#include "config/run_config.h"
#include "train/run_context.h"

namespace athanor {

/// Trains until train.steps, or until a signal reaches any rank. Collective over the world.
/// @param context  tells other parts of this process which step is in progress, and in which folder.
/// @return an exit code (docs/exit-codes.md): 0 if the run is complete; 143 or 130 after SIGTERM or SIGINT with
/// everything saved, or before the first step; 11 if the last checkpoint or model could not be written, or a signal
/// came when nothing was saved.
/// @throws ConfigError, DataError, CheckpointError before step 1; NumbersError if an update had to be refused;
/// CommError.
int run_training(RunConfig config, comm::World& world, RunContext& context);

}  // namespace athanor
