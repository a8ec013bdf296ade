#pragma once
// Tells that this process will fail on purpose.

namespace athanor {

/// Prints the line of describe_armed_faults (base/fault.h), once in a process, and on rank 0 of a job alone. A program
/// calls it when nothing can refuse the start any more; a fault that acts before that announces itself.
void announce_armed_faults();

}  // namespace athanor
