#pragma once
// Signals that ask a process to stop: the first SIGTERM or SIGINT lets it finish properly, a second one ends it at
// once. Also keeps a process alive if the reader of its output is gone.

#include <csignal>
#include <optional>

namespace athanor {

/// Catches the signals during its lifetime, then restores the previous handlers. Only one may exist at a time, because
/// signals, and so the flag, belong to the process.
///
/// SIGINT is caught even if it was ignored at start (in a shell's background job), because its sender means this
/// process.
class SignalGuard {
 public:
  /// @param what_follows  printed when the first signal arrives: "finishing the step and saving". It must outlive the
  ///                      guard. Ranks of a job print nothing: when one of them has failed, the launcher sends SIGTERM
  ///                      to the others, and the line that reports the failure must stay the last.
  explicit SignalGuard(const char* what_follows);
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  /// Returns the first signal since construction. After it, the next signal exits with 128 + its number.
  std::optional<int> stop_signal() const;

 private:
  struct sigaction old_term_, old_int_;
};

/// During its lifetime, a write to a pipe without a reader fails with EPIPE instead of ending the process: a terminal
/// that was closed, or a `tee` that a Ctrl-C ended, must not cost a run its last steps.
class BrokenPipeGuard {
 public:
  BrokenPipeGuard();
  ~BrokenPipeGuard();
  BrokenPipeGuard(const BrokenPipeGuard&) = delete;
  BrokenPipeGuard& operator=(const BrokenPipeGuard&) = delete;

 private:
  struct sigaction old_;
};

}  // namespace athanor
