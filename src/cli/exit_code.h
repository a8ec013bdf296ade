#pragma once
// How a subcommand ends the process with a code other than 0, without a message: a run that a signal stopped, for
// example.

namespace athanor::inline cli {

/// Thrown by a subcommand that has printed everything; main() returns `value`, a code of base/exit_codes.h.
struct ExitCode {
  int value;
};

}  // namespace athanor::inline cli
