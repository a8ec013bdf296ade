#pragma once
// The numbers that torchrun, or a job script in its place, has set in the environment of a process. Used by
// launched.cpp alone.

#include <string>

namespace athanor {

/// Refuses numbers that cannot be those of a process of a job: RANK or WORLD_SIZE without the other, or a value that
/// is no number that can be; and LOCAL_RANK and LOCAL_WORLD_SIZE that contradict each other or WORLD_SIZE.
/// @throws ConfigError that names the variable, its value, and what to do.
void refuse_wrong_torchrun_numbers();

/// Returns how RANK or WORLD_SIZE contradict the numbers which srun has given to this task; empty if they do not. Tasks
/// that start several processes each (as torchrun does, started once on each node) are accepted. A process with such a
/// contradiction has no rank: it must not speak for a job (launched()).
std::string contradiction_to_srun();

/// @throws ConfigError if there is such a contradiction, one task after the other.
void refuse_other_numbers_than_sruns();

}  // namespace athanor
