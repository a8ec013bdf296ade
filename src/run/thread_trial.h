#pragma once
// Finds the number of threads that makes a run's steps fastest, during the run.
//
// Threads that the work cannot feed only wait for each other, and if other processes run at the same time they wait for
// those as well. The result of a step does not depend on the number of threads, so the number may change from step to
// step: now and then a few steps run with half as many threads (or twice as many, if fewer have won before),
// alternately with the number that is kept. Each rank tries its own number; nothing is sent.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::inline run {

class ThreadTrial {
 public:
  /// @param most  the number of threads that this process may have; it begins with them.
  /// @param fixed  the user has asked for this number: no other is tried.
  ThreadTrial(int most, bool fixed);

  /// Returns the number of threads for the next step: the kept one, or the one that is being tried.
  int threads() const { return trying() && turn_ % 2 == 0 ? other_ : kept_; }
  /// Returns the number that has been the fastest so far.
  int kept() const { return kept_; }

  /// Reports how long the step with threads() took to compute, without waiting for data and other ranks.
  /// @return what has changed because of it, for the log; empty: nothing.
  std::string took(double seconds);

  /// Call it if the next steps are of another kind: drops the measurements of a trial in progress, which are not
  /// comparable with them.
  void restart();

 private:
  bool trying() const { return other_ > 0; }
  bool is_due(double seconds) const;
  void begin();
  void end() { other_ = 0; }
  std::string decide();

  int most_, kept_;
  bool fixed_;
  bool upwards_ = false;      // direction of the next trial
  int64_t steps_since_ = 0;   // since the last trial
  double seconds_since_ = 0;  // since the last trial
  bool tried_ = false;        // a trial has been made
  double steady_s_ = 0;       // time of the last step before a trial
  int other_ = 0;             // number being tried; 0: none
  int turn_ = 0;              // step of the trial: even ones use the other number
  std::vector<double> other_s_, kept_s_;
};

}  // namespace athanor::inline run
