#pragma once
// The line that says why a process ends, and its exit code.

#include <cstdint>
#include <exception>
#include <string>

#include "base/exit_codes.h"
#include "base/launched.h"

namespace athanor {

/// What an exception comes to: its message (and remedy), the exit code, and the tensor it is about, if it is about one.
struct Failure {
  std::string message;
  int exit_code = exit_code::kUnforeseen;
  std::string tensor = {};
};

/// @param in_run  a run has begun, and every check of its start has passed: data, checkpoints and files that fail now
///                are no longer input that is refused (2) but I/O that failed (74), whatever the system's reason.
/// Out of memory is 79, ours or libtorch's.
Failure describe_failure(const std::exception_ptr& exception, bool in_run = false);

/// "rank 3 (node7): step 12: <message>"; without the rank where there is one, without the step where it is 0 or the
/// message begins with it.
std::string failure_line(const Failure& failure, const Launched& me, const std::string& host, int64_t step);

}  // namespace athanor
