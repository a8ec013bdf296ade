#pragma once
// The line that reports why a process ends, and its exit code.

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "base/exit_codes.h"
#include "base/launched.h"
#include "base/missing_ranks.h"

namespace athanor {

/// Description of an exception: its message (with the remedy), the exit code, and the tensor that it concerns, if any.
struct Failure {
  static constexpr int kReporter = -2, kUnknown = -1;

  std::string message;
  int exit_code = exit_code::kUnforeseen;
  std::string tensor = {};
  int rank = kReporter;  ///< the rank at fault: the one that reports, one that is not known, or this one, with its host
  std::string host = {};
  std::vector<RankOnHost> missing = {};  ///< with kCollective: the ranks that the others waited for, if they are known
  bool is_told = false;                  ///< another rank, or this one, has printed it
};

/// Returns the description of an exception. Out of memory has exit code 79, for this program's and libtorch's
/// exceptions.
/// @param in_run  true if a run has begun and all checks at its start have passed: failures of data, checkpoints and
///                files then count as failed I/O (74) instead of refused input (2).
Failure describe_failure(const std::exception_ptr& exception, bool in_run = false);

/// Returns "rank 3 (node7): step 12: <message>". The rank is left out if there is only one, and the step if it is 0 or
/// the message begins with it.
std::string failure_line(const Failure& failure, const Launched& me, const std::string& host, int64_t step);

}  // namespace athanor
