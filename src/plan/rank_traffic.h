#pragma once
// What a rank sends in a step, from a step that was played.

#include <vector>

#include "config/run_config.h"
#include "layout/traffic.h"
#include "plan/play_record.h"

namespace athanor::inline plan {

/// Returns the lines of a step of the run, without calls that send nothing.
/// @param record        a step of the same rank with fewer microbatches, and with a second backward if the optimizer
/// has
///                      one (optimizer.hessian_interval = 1).
/// @param microbatches  of the step that was played.
std::vector<RankTraffic> traffic_of_step(const PlayRecord& record, const RunConfig& config, int64_t microbatches,
                                         int64_t all_microbatches);

/// A line of a step's second backward, as a mean over steps; without one, empty. Weights, updates and numbers of the
/// step are sent once.
std::vector<RankTraffic> traffic_of_second_backward(const std::vector<RankTraffic>& of_step, const RunConfig& config);

}  // namespace athanor::inline plan
