#pragma once
// All ranks of a job must have the same settings: each process has its own command line, and may read its own file.

#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "config/run_config.h"

namespace athanor::inline run {

/// Compares the settings of all ranks. What may differ is where a host has its data, numbers of threads, what
/// train.dtype = "auto" became, and train.device, which has another check (run/rank_devices.h). Collective over the
/// world; waits.
/// @throws ConfigError on all ranks, with fields that differ from rank 0's and both values, for up to eight ranks.
void require_same_settings(const RunConfig& config, comm::World& world);

/// Options of a command line with their values, as texts.
using Options = std::vector<std::pair<std::string, std::string>>;
/// The same for the options of a command. All ranks give the same names. Collective over the world; waits.
void require_same_options(const Options& options, comm::World& world);

}  // namespace athanor::inline run
