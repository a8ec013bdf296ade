#pragma once
// What `athanor launch` did with a run, from its folder attempts/ (docs/launch.md).

#include <filesystem>
#include <vector>

#include "report/run_events.h"

namespace athanor::inline report {

/// Returns an event "launch" for the end of each attempt, with its verdict, and "swap" for each host that another one
/// replaced in the next attempt; empty if the folder is missing. Files that cannot be understood are left out.
std::vector<RunEvent> read_run_attempts(const std::filesystem::path& attempts);

}  // namespace athanor::inline report
