#pragma once
// athanor smoke --against: the same small models under two builds, and the first tensor in which they differ.

#include "cli/core.h"
#include "smoke/smoke.h"

namespace athanor::inline cli {

/// Runs the other build's `athanor smoke` and this one's, and prints what differs: first the facts of the builds, then
/// for each model the first tensor, with both hashes and the largest difference. A build that cannot write traces is
/// compared by its losses and gradient norms.
/// @return 0 if all is equal, 1 if not.
/// @throws ConfigError, DataError if the other build cannot be run, fails, hangs or writes something else. Nothing of
///         what it wrote stays.
int smoke_against(const SmokeArguments& given, const SmokePlace& on);

}  // namespace athanor::inline cli
