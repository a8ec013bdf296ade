#pragma once
// Which number of threads makes a run's steps fastest, found out while they are made.
//
// More threads than the work feeds only wait for each other, and beside other processes they wait for those as well. No
// bits depend on the number, so that it may change from step to step: now and then a few steps are made with half as
// many threads (or twice as many, where fewer have won before), in turns with the number that is kept.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor {

class ThreadTrial {
 public:
  /// @param most  threads that this process may have, and begins with.
  /// @param fixed  somebody has asked for them: nothing else is tried.
  ThreadTrial(int most, bool fixed);

  /// For the next step.
  int threads() const { return trying() && turn_ % 2 == 0 ? other_ : kept_; }
  int kept() const { return kept_; }

  /// What the step with threads() took to compute, without waiting for data and other ranks.
  /// @return what has changed by it, for the log; empty: nothing.
  std::string took(double seconds);

  /// The steps that follow are of another kind: what was measured of a trial underway says nothing of them.
  void restart();

 private:
  bool trying() const { return other_ > 0; }
  bool is_due(double seconds) const;
  void begin();
  void end() { other_ = 0; }
  std::string decide();

  int most_, kept_;
  bool fixed_;
  bool upwards_ = false;      // of the next trial
  int64_t steps_since_ = 0;   // the last trial
  double seconds_since_ = 0;  // likewise
  bool tried_ = false;        // at least once
  double steady_s_ = 0;       // the last step before a trial
  int other_ = 0;             // tried at present; 0: none
  int turn_ = 0;              // of the trial: even ones with the other number
  std::vector<double> other_s_, kept_s_;
};

}  // namespace athanor
