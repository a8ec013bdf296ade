#pragma once
// The signals that `athanor launch` waits for, as events that are read together with the output of its programs.

#include <chrono>
#include <csignal>

namespace athanor::launch {

/// Whether who sends the signal wants the command to end: SIGTERM, SIGINT or SIGHUP.
constexpr bool asks_to_stop(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP; }

/// Blocks SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD during its lifetime, so that they are read here. A
/// write to a pipe that has no reader fails meanwhile (SIGPIPE is blocked, too). Only one may exist at a time, and
/// threads that are there before it must not take these signals.
class WaitedSignals {
 public:
  WaitedSignals();
  ~WaitedSignals();
  WaitedSignals(const WaitedSignals&) = delete;
  WaitedSignals& operator=(const WaitedSignals&) = delete;

  /// Can be read if there is a signal.
  int descriptor() const { return descriptor_; }
  /// Returns the number of a signal that has come, or 0. Does not wait.
  int take() const;
  /// Returns whether a signal that is not SIGCHLD waits to be taken.
  static bool has_come();
  /// Returns the number of a signal as soon as one comes that is not SIGCHLD, or 0 after a while.
  int wait(std::chrono::milliseconds at_most) const;

 private:
  sigset_t old_;
  struct sigaction old_child_ {};
  int descriptor_ = -1;
};

}  // namespace athanor::launch
