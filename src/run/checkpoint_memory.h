#pragma once
// The check that a host has the memory that checkpoints take there, which the memory of the training step
// (preflight.h) does not contain.

#include "comm/world.h"
#include "config/run_config.h"
#include "saves/local_start.h"

namespace athanor::inline run {

/// Checks, on each host, the copies to write checkpoints from if the run computes on devices, and the local checkpoints
/// if checkpoint.local_dir is memory. What earlier attempts of the run left there counts as free. Sends nothing; to be
/// called before the state is allocated.
/// @throws ConfigError with the parts of the need.
void check_checkpoint_memory(const RunConfig& config, const comm::World& world, const LocalStart& local,
                             at::Device device);

}  // namespace athanor::inline run
