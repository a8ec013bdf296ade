#include "run/thread_trial.h"

#include <fmt/core.h>

#include <algorithm>

namespace athanor::inline run {
namespace {

// In the first steps, a run makes kernels, takes memory and fills caches.
constexpr int64_t kWarmSteps = 2;
// If all threads are useful, a trial with half of them costs at most one more step, since it ends at once when it is
// hopeless: half a percent of 200 steps. Short steps are not tried more often, so that the log stays short.
constexpr int64_t kStepsBetween = 200;
constexpr double kSecondsBetween = 20;
constexpr double kHopeless = 1.25;
// A step that takes longer has work for every thread, and a trial of it would cost noticeable time.
constexpr double kLongStep_s = 1;
constexpr int kTurns = 6;         // three steps with either number
constexpr double kBetter = 0.95;  // the times of equal steps differ by less, as a median of three

double median_of_three(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace

ThreadTrial::ThreadTrial(int most, bool fixed) : most_(most), kept_(most), fixed_(fixed || most == 1) {}

void ThreadTrial::restart() {
  end();
  steps_since_ = 0;
  tried_ = false;
}

bool ThreadTrial::is_due(double seconds) const {
  if (fixed_ || steps_since_ < kWarmSteps) return false;
  if (seconds >= kLongStep_s && kept_ == most_) return false;
  return !tried_ || (steps_since_ >= kStepsBetween && seconds_since_ >= kSecondsBetween);
}

void ThreadTrial::begin() {
  if (kept_ == most_) upwards_ = false;
  if (kept_ == 1) upwards_ = true;
  other_ = upwards_ ? std::min(most_, 2 * kept_) : kept_ / 2;
  turn_ = 0;
  other_s_.clear();
  kept_s_.clear();
  tried_ = true;
  steps_since_ = 0;
  seconds_since_ = 0;
}

std::string ThreadTrial::took(double seconds) {
  if (!trying()) {
    ++steps_since_;
    seconds_since_ += seconds;
    steady_s_ = seconds;
    if (is_due(seconds)) begin();
    return "";
  }
  (turn_ % 2 == 0 ? other_s_ : kept_s_).push_back(seconds);
  if (turn_ == 0 && seconds > kHopeless * steady_s_) {
    upwards_ = !upwards_;
    end();
    return "";
  }
  return ++turn_ == kTurns ? decide() : "";
}

std::string ThreadTrial::decide() {
  const double other_s = median_of_three(other_s_), kept_s = median_of_three(kept_s_);
  const int before = kept_;
  if (other_s < kBetter * kept_s) {
    kept_ = other_;
    tried_ = false;  // the next number in this direction may be better still
  } else {
    upwards_ = !upwards_;
  }
  end();
  if (kept_ == before) return "";
  return fmt::format("{} thread{} from here on: a step takes {:.3g} ms with {} and {:.3g} ms with {} (in turns)", kept_,
                     kept_ == 1 ? "" : "s", 1e3 * other_s, kept_, 1e3 * kept_s, before);
}

}  // namespace athanor::inline run
