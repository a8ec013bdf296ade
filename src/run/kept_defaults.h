#pragma once
// Settings that the user did not set and that a continued run keeps from its beginning.

#include "checkpoint/team.h"
#include "config/run_config.h"

namespace athanor::inline run {

/// Keeps the warm-up of the previous attempt. A warm-up that the user did not set follows from the number of steps
/// (config/defaults.h). If that number was raised since, a continued run would warm up again; so it keeps the warm-up
/// in the previous attempt's configuration: in train.run_dir, or in the run that checkpoint.resume names a checkpoint
/// of. If a configuration cannot be read, a warning names it. Collective over `team`.
void keep_warmup(RunConfig& config, const Team& team);

/// Resolves train.dtype = "auto": on all ranks the type that is fast on the first rank's CPU, unless the previous
/// attempt used another type; a continued run keeps that type on any CPU. `chip` is what messages call the chip that
/// decides. Collective over `team`.
void keep_dtype(RunConfig& config, const Team& team, const std::string& chip = "this CPU");

/// Replaces a validation interval that followed from the data (run/validation.h) by that of the previous
/// attempt, if there is one. Collective over `team`.
void keep_validation_interval(RunConfig& config, const Team& team);

}  // namespace athanor::inline run
