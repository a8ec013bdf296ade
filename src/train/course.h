#pragma once
// Is a start of a run another course of it, or the same command once more?

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// "optimizer.lr was 0.002, is 0.001": what differs from the configuration of the attempt before (config.toml) and
/// changes what is learnt. Empty if nothing does, or there was no attempt that can be read.
///
/// Not counted is what a job that is queued again may change: how long it runs, on how many ranks and threads, where
/// it lies, how often it saves and validates. Nor is what only a start fills in: a length that the data have, a warm-up
/// that nobody set.
std::vector<std::string> changes_of_course(const RunConfig& config);

}  // namespace athanor
