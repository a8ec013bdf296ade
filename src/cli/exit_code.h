#pragma once

namespace athanor {

/// Thrown by a subcommand that ended well enough to say no more, but not with 0: a run stopped by a signal.
struct ExitCode {
  int value;
};

}  // namespace athanor
