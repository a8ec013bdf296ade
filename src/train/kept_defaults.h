#pragma once
// What nobody set, in a run that goes on: what it began with stays.

#include "checkpoint/team.h"
#include "config/run_config.h"

namespace athanor {

/// A warm-up that nobody set follows from the steps (config/defaults.h). Where these were raised since, a run that goes
/// on would warm up again, so it keeps the one in the configuration of the attempt before: in train.run_dir, or in the
/// run that checkpoint.resume names a checkpoint of. A configuration that cannot be read is named by a warning.
/// Collective over `team`.
void keep_warmup(RunConfig& config, const Team& team);

/// A train.dtype "auto" is what the first rank's CPU is fast in, on all ranks, unless the attempt before was in another
/// type: a run that goes on keeps that, on whatever CPU. Collective over `team`.
void keep_dtype(RunConfig& config, const Team& team);

}  // namespace athanor
