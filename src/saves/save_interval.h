#pragma once
// How often a run should save (checkpoint.interval = "auto"): often enough that a failure costs little, and so seldom
// that saving costs little.
//
// Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
// Computer Systems 22 (2006), equations 20 and 37; the first term is J. W. Young's (1974).

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace athanor::inline saves {

/// Returns the seconds of work between two saves that lose the least time (Daly, equation 37).
/// @param cost_s  seconds of work that a save costs, at least 0.
/// @param mtbf_s  mean time between failures of the job, above 0.
double best_interval_s(double cost_s, double mtbf_s);

/// Returns the seconds that a job takes on average for a second of work, if it saves after each `interval_s` of work
/// (Daly, equation 20).
double expected_time(double interval_s, double cost_s, double restart_s, double mtbf_s);

/// How often a job fails.
struct FailureRate {
  double mtbf_s = 0;
  std::string from;  ///< where that is known from, for the log
};

/// Returns the rate of a job on `nodes` nodes.
/// @param mtbf_hours  of a node (checkpoint.mtbf_hours); 0: what the run's history (events.jsonl) shows if it has two
///                    failures, else a published figure. A failure is an attempt without an end, or whose end reports
///                    that something failed; the time of an attempt is that from its first to its last line.
FailureRate find_failure_rate(double mtbf_hours, int64_t nodes, const std::filesystem::path& events);

/// Measures what saves cost, and tells when the next one is due.
class SaveInterval {
 public:
  explicit SaveInterval(FailureRate rate) : rate_(std::move(rate)) {}

  /// Notes the seconds from the start of the process to the end of the first step.
  void restarted(double seconds) { restart_s_ = seconds; }
  /// Notes the seconds of a later step, with all that came before it since the one before.
  /// @param saving  a save was started right before it, or was being written.
  void step_took(double seconds, bool saving);
  /// Notes that a save has begun.
  void began() { has_begun_ = true; }
  /// Notes that a save is on disk.
  /// @param stopped_s  seconds for which the run was stopped.
  /// @param seconds    from its beginning until it was on disk.
  /// @return a line for the log if the interval has changed by more than a fifth, else an empty string.
  std::string saved(double stopped_s, double seconds);

  /// Returns whether a save is due if the last one began `since_s` ago. The first one is due after a step
  /// whose time shows what saving adds, and again after five minutes if it came to nothing.
  bool is_due(double since_s) const;

 private:
  FailureRate rate_;
  double restart_s_ = 0;
  double step_s_ = 0, slower_s_ = 0;  // mean of a step while nothing is saved; what the steps of a save took more
  bool has_begun_ = false;
  int64_t num_plain_ = 0;               // steps in that mean
  double interval_s_ = 0, told_s_ = 0;  // 0: not known yet
};

}  // namespace athanor::inline saves
