#pragma once
// How a process is asked to stop: the first SIGTERM or SIGINT lets it come to a good end, a second one ends it at once.
// And how it lives on where nobody reads what it prints.

#include <csignal>
#include <optional>

namespace athanor {

/// Listens while it lives, then restores what was there before. One at a time in a process: signals belong to the
/// process, so the flag does too.
///
/// SIGINT is caught even where it came in ignored (a shell's background job): whoever sends it means this process.
class SignalGuard {
 public:
  /// `what_follows` is said when the first signal comes: "finishing the step and saving". It must outlive the guard.
  /// Among the ranks of a job nothing is: when one has failed its launcher sends SIGTERM to the others, and the line
  /// that says why is to stay the last.
  explicit SignalGuard(const char* what_follows);
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  /// The first signal that came since construction. After it, the next one exits with 128 + its number.
  std::optional<int> stop_signal() const;

 private:
  struct sigaction old_term_, old_int_;
};

/// While it lives, writing to a pipe whose reader is gone is an error of that write (EPIPE) rather than the end of the
/// process: a terminal that was closed, or a `tee` that a Ctrl-C ended, must not cost a run its last steps.
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
