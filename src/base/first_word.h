#pragma once
// In a job without MPI: rank 0 tells the others that it has reported a failure, before there is any connection.
//
// All ranks may find the same fault of a configuration, and one line about it suffices. An MPI's launcher ends the
// other ranks when rank 0 has ended; other launchers may not. So rank 0 answers at the address where the ranks would
// have met (launched.h), and the others end with its exit code and without a line.

#include <chrono>
#include <optional>

#include "base/launched.h"

namespace athanor {

/// Gives the exit code to the ranks that ask for it, until all others have or `limit` has passed.
void give_first_word(const MasterAddress& master, int num_others, int exit_code, std::chrono::milliseconds limit);

/// Asks rank 0 until it answers with its exit code, or `limit` has passed. Returns after that time in any case if rank
/// 0 has no failure to report.
std::optional<int> hear_first_word(const MasterAddress& master, std::chrono::milliseconds limit);

}  // namespace athanor
