#pragma once
// Signals that ask a process to stop or to save: it finishes what it is doing first. A second request to stop ends it
// at once. Also keeps a process alive if the reader of its output is gone.

#include <csignal>
#include <optional>

namespace athanor {

/// What SIGUSR1 or SIGUSR2 asks for. Schedulers send one of them some time before they end a job.
enum class Warning { kIgnore, kSave, kStop };

/// Catches signals during its lifetime, then restores the previous handlers. Only one may exist at a time, because
/// signals, and so what they have asked for, belong to the process.
///
/// SIGTERM, SIGINT and SIGHUP ask for a stop. A SIGHUP that was ignored when the process started stays ignored (nohup).
/// SIGINT is caught even if it was ignored then (in a shell's background job), because its sender means this process.
class SignalGuard {
 public:
  /// Leaves SIGUSR1 and SIGUSR2 as they are.
  /// @param what_follows  printed when the first signal arrives: "finishing the step and saving". It must outlive the
  ///                      guard. Ranks of a job print nothing: when one of them has failed, the launcher sends SIGTERM
  ///                      to the others, and the line that reports the failure must stay the last.
  explicit SignalGuard(const char* what_follows);
  /// Also catches SIGUSR1 and SIGUSR2, and on the first request to stop keeps the launcher from killing this rank
  /// (LauncherHold::hold).
  SignalGuard(const char* what_follows, Warning usr1, Warning usr2);
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  /// Returns the first signal since construction that asked for a stop. After it, the next one that does exits with
  /// 128 + its number. In a job of several processes, signals of the next three seconds count as the same request.
  std::optional<int> stop_signal() const;

  /// Call it when all processes of a job know that it ends: further signals of a job are ignored from then on, also
  /// when this object is gone. A launcher may pass on late what has already been done.
  void agree_on_end() const;

  /// Returns whether a signal has asked to save since the last call.
  bool take_save_request() const;

 private:
  void handle(int number, struct sigaction& old);

  struct sigaction old_term_ {
  }, old_int_{}, old_hup_{}, old_usr1_{}, old_usr2_{};
  bool warnings_ = false;
};

/// Returns the name of a signal that a guard catches ("SIGTERM"), else "a signal". A handler of a signal may call it.
const char* signal_name(int number);

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
