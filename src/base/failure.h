#pragma once
// The line that says why a process ends, and its exit code.

#include <cstdint>
#include <exception>
#include <string>

#include "base/launched.h"

namespace athanor {

/// What an exception comes to: its message (and remedy) and the exit code, 2 for the user's input, 1 for the rest.
struct Failure {
  std::string message;
  int exit_code = 1;
};
Failure describe_failure(const std::exception_ptr& exception);

/// "rank 3 (node7): step 12: <message>"; without the rank where there is one, without the step where it is 0 or the
/// message begins with it.
std::string failure_line(const Failure& failure, const Launched& me, const std::string& host, int64_t step);

}  // namespace athanor
