#pragma once
// How often a run validates if no user set it.

#include <vector>

#include "run/run_data.h"

namespace athanor::inline run {

inline constexpr int64_t kDefaultValidationInterval = 250;

/// Makes a number of train.validation_interval = "auto", in `config` and in all phases: the number of the attempt from
/// which this one continues; in a new run kDefaultValidationInterval if the data of any phase have validation
/// instances, else 0. Warns of phases and sources that have none. Collective over `team`.
/// @throws ConfigError if a number was set, and no phase has validation instances.
void settle_validation_interval(RunConfig& config, std::vector<StageData>& stages, const Team& team);

}  // namespace athanor::inline run
