#pragma once

namespace athanor {

/// Thrown by a subcommand that has printed everything it had to, but does not exit with 0: a run stopped by a signal.
struct ExitCode {
  int value;
};

}  // namespace athanor
