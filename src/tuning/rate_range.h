#pragma once
// The range test of learning rates: the rate grows from step to step by the same factor, and the curve of the loss
// shows which rates train and which are too large. Sources: Smith 2017, Cyclical Learning Rates, section 3.3; the
// bias-corrected exponential mean of the loss is that of Kingma and Ba 2015, section 3.
//
// Nothing here knows a model: a caller takes a step with next_rate() and adds the loss that it saw.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace athanor::inline tuning {

/// The rates of a range test: `steps` of them from `from` to `to`, each larger than the one before by the same factor.
struct RateRange {
  double from = 0, to = 0;
  int64_t steps = 0;

  /// Returns the rate of a step, counted from 0. For step −1 it is one factor below `from`.
  double rate(int64_t step) const;
};

/// What a rate has led to.
struct RangePoint {
  double lr;        ///< the rate of the update before the loss; rate(−1) for the first loss, which has none before it
  double loss;      ///< as added; may be not finite in the last point
  double smoothed;  ///< exponential mean of the losses so far
  /// The rate that `smoothed` belongs to: the same mean of the logarithms of the rates, which lag as the losses do.
  double smoothed_lr;
};

struct RangeResult {
  double first_loss = 0, lowest = 0;  ///< the loss before any update, and the lowest smoothed one
  /// the rate at which the smoothed loss falls fastest over the logarithm of the rate; nothing if `fault` is set
  std::optional<double> steepest;
  /// the rate from which on the loss rises until it blows up; nothing if it does not, up to the end of the range
  std::optional<double> blow_up;
  std::string fault;  ///< what is wrong with the range, and the remedy; empty: nothing

  /// A tenth of the rate of blow-up, as a choice that leaves room; nothing if `fault` is set, since no rate of such a
  /// range has trained.
  std::optional<double> cautious() const {
    return blow_up && fault.empty() ? std::optional(*blow_up / 10) : std::nullopt;
  }
  /// The rate to begin with: the geometric middle of the steepest and the cautious one, or the steepest if the loss has
  /// not blown up; nothing if `fault` is set.
  std::optional<double> suggested() const {
    return steepest ? std::optional(std::sqrt(*steepest * cautious().value_or(*steepest))) : std::nullopt;
  }
};

class RangeTest {
 public:
  /// @param range  0 < from < to, and at least kLeastSteps steps.
  explicit RangeTest(RateRange range);
  static constexpr int64_t kLeastSteps = 20;

  /// The losses are averaged over about this many steps: one in twenty of the range.
  static double window(int64_t steps);

  /// True after the last step of the range, or when the loss has blown up.
  bool is_over() const { return blown_up_ || std::ssize(points_) == range_.steps; }
  /// Returns the rate of the next update.
  double next_rate() const { return range_.rate(std::ssize(points_)); }
  /// Adds the loss that a step saw before its update. The loss has blown up if it is not finite, or if its mean
  /// is far above the lowest mean: by half of what it had fallen from the first loss, and by at least a tenth of that.
  void add(double loss);

  const std::vector<RangePoint>& points() const { return points_; }
  RangeResult result() const;

 private:
  double margin() const;
  double rate_of_blow_up() const;
  double steepest_rate() const;

  RateRange range_;
  double beta_, mean_loss_ = 0, mean_log_rate_ = 0, weight_ = 0;  // sums, and the sum of their weights
  double lowest_ = 0;
  size_t lowest_at_ = 0;
  std::vector<RangePoint> points_;
  bool blown_up_ = false;
};

}  // namespace athanor::inline tuning
