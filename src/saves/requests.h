#pragma once
// What a run is asked to do before its end: to save, or to save and stop. Signals and limits of time ask for it. The
// ranks agree on it after each step, so that all of them save and stop after the same step.

#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>

#include "base/signals.h"
#include "comm/communicator.h"
#include "config/run_config.h"
#include "saves/save_interval.h"

namespace athanor::inline saves {

/// Equal on all ranks.
struct Requests {
  int stop_signal = 0;  ///< 0: none
  bool time_is_up = false;
  bool save = false;               ///< a full checkpoint, although none is due by its step
  bool probe = false;              ///< the ranks and nodes shall be measured (probe.h)
  bool saving = false;             ///< a rank is writing a checkpoint in the background
  std::optional<int> cannot_read;  ///< the lowest rank that cannot read its next batch

  bool stop() const { return stop_signal != 0 || time_is_up; }
};

/// Returns the exit code of a run that a signal or a limit of time (0) stopped, and that has saved.
int exit_code_of_stop(int stop_signal);

/// The clock of a run, on its first rank: limits of time, and saves that are due by time.
class RunClock {
 public:
  /// Looks for the limit of the scheduler's job and logs what it found.
  /// @param nodes  of the job.
  RunClock(const RunConfig& config, int64_t nodes);

  /// Returns whether another step that takes as long as the last would end after train.stop_after, or too late for a
  /// save before the end of the job.
  bool time_is_up() const;
  bool save_is_due() const;
  /// Returns whether a user has asked for a probe, by a file in the run's folder. Looks for it every 5 s at most.
  bool probe_is_asked();
  /// Notes the time from the end of the step before to the end of this one.
  /// @param pending  whether a save was started whose outcome is not known yet.
  void step_took(double seconds, bool pending);
  /// Notes that a save has begun.
  void save_began();
  /// Notes that a save is on disk, which stopped the run for `stopped_s` and was on disk after `seconds`. The log tells
  /// what changes by that.
  void saved(double stopped_s, double seconds);
  /// Returns what ended the time: "train.stop_after (11h30m)".
  std::string limit() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Limit {
    Clock::time_point at;
    std::string name;
  };
  double margin_s() const;
  bool passes(const Limit& limit, double margin_s) const;

  std::filesystem::path probe_request_;
  Clock::time_point looked_for_probe_ = Clock::now();
  double save_interval_s_;
  std::optional<SaveInterval> best_;  // checkpoint.interval = "auto"
  bool began_ = false;                // a save has, since the last step
  Clock::time_point start_ = Clock::now(), saved_ = start_;
  std::optional<Limit> job_, asked_;
  std::string asked_margin_;
  double asked_margin_s_ = 0, longest_save_s_ = 0, step_s_ = 0;
};

/// Returns what any rank was asked for. Collective over the world, one all-reduce of six numbers.
/// @param clock       null on all ranks but the first.
/// @param saving      whether this rank writes a checkpoint.
/// @param unreadable  why this rank cannot read its next batch, or the damage that it found; null if there is neither.
Requests agree_on_requests(comm::Communicator& world, const SignalGuard& signals, RunClock* clock, bool saving,
                           const std::exception_ptr& unreadable);

}  // namespace athanor::inline saves
