#pragma once
// On how many hosts a command can continue if some are lost and no spare is left (--min-nodes).

#include <functional>

#include "launch/launcher_command.h"

namespace athanor::launch {

/// Returns a function for FailoverLimits::fewer_hosts: the largest number of hosts from `least` to `most` that the
/// command can run on. A training needs a layout that its configuration allows, so that data and batch stay as they
/// are; another command runs on any number.
/// @throws ConfigError if places have different numbers of ranks, or if there are fewer hosts than `least`.
std::function<int(int most)> hosts_that_fit(const LaunchPlan& plan, const std::string& own_program, int least);

/// Uses the first hosts of the plan only. Their ranks stay as they are.
void keep_first_hosts(LaunchPlan& plan, size_t number);

}  // namespace athanor::launch
