#include "tuning/rate_range.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace athanor::inline tuning {
namespace {

// A loss that has fallen by less than this share of the first one has not moved, or not before it blew up.
constexpr double kLeastFall = 0.01;

// The slope of the line of least squares through points [begin, end).
double slope_of(const std::vector<RangePoint>& points, size_t begin, size_t end) {
  const auto count = static_cast<double>(end - begin);
  double mean_x = 0, mean_y = 0;
  for (size_t i = begin; i < end; ++i) {
    mean_x += std::log(points[i].smoothed_lr) / count;
    mean_y += points[i].smoothed / count;
  }
  double products = 0, squares = 0;
  for (size_t i = begin; i < end; ++i) {
    const double x = std::log(points[i].smoothed_lr) - mean_x;
    products += x * (points[i].smoothed - mean_y);
    squares += x * x;
  }
  return products / squares;
}

}  // namespace

double RateRange::rate(int64_t step) const {
  const double share = static_cast<double>(step) / static_cast<double>(steps - 1);
  return from * std::pow(to / from, share);
}

double RangeTest::window(int64_t steps) { return std::max(2.0, static_cast<double>(steps) / 20); }

RangeTest::RangeTest(RateRange range) : range_(range), beta_(1 - 1 / window(range.steps)) {}

// How far above the lowest mean the loss has blown up.
double RangeTest::margin() const {
  const double first = points_.front().loss;
  return std::max((first - lowest_) / 2, std::abs(first) / 10);
}

void RangeTest::add(double loss) {
  const double lr = range_.rate(std::ssize(points_) - 1);
  mean_loss_ = beta_ * mean_loss_ + (1 - beta_) * loss;
  mean_log_rate_ = beta_ * mean_log_rate_ + (1 - beta_) * std::log(lr);
  weight_ = beta_ * weight_ + (1 - beta_);
  const double smoothed = mean_loss_ / weight_;
  points_.push_back({lr, loss, smoothed, std::exp(mean_log_rate_ / weight_)});
  if (points_.size() == 1 || smoothed < lowest_) {
    lowest_ = smoothed;
    lowest_at_ = points_.size() - 1;
  }
  blown_up_ = !std::isfinite(loss) || smoothed > lowest_ + margin();
}

// The rise began after the last point that was near the lowest: a tenth of the way to where it has blown up. The mean
// lags, so this looks at the losses themselves.
double RangeTest::rate_of_blow_up() const {
  const double near = lowest_ + margin() / 10;
  size_t i = points_.size() - 1;
  while (i > lowest_at_ + 1 && !(points_[i - 1].loss <= near)) --i;
  return points_[i].lr;
}

double RangeTest::steepest_rate() const {
  const auto reach = static_cast<size_t>(std::max(1.0, std::round(window(range_.steps) / 2)));
  double lowest = 0;
  size_t at = lowest_at_;
  for (size_t i = reach; i + reach <= lowest_at_; ++i) {
    const double slope = slope_of(points_, i - reach, i + reach + 1);
    if (slope < lowest) {
      lowest = slope;
      at = i;
    }
  }
  return points_[at].smoothed_lr;
}

RangeResult RangeTest::result() const {
  RangeResult result;
  result.first_loss = points_.front().loss;
  result.lowest = lowest_;
  const double fall = result.first_loss - lowest_;
  const bool has_moved = fall >= kLeastFall * std::abs(result.first_loss);
  if (blown_up_) result.blow_up = rate_of_blow_up();
  if (has_moved) {
    result.steepest = steepest_rate();
  } else if (blown_up_) {
    result.fault = fmt::format(
        "the loss blows up at a rate of {:.3g} before it has fallen by 1% of its first value, {:.4g}: begin with a "
        "lower rate (--from {:.0e}), or take more steps (--steps {})",
        *result.blow_up, result.first_loss, range_.from / 1000, 2 * range_.steps);
  } else {
    result.fault = fmt::format(
        "the loss does not move: from {:.4g} it falls to {:.4g} at most, at rates from {:.3g} to {:.3g}: end with a "
        "higher rate (--to {:.0e}), or take more steps (--steps {})",
        result.first_loss, lowest_, range_.from, range_.to, range_.to * 1000, 2 * range_.steps);
  }
  return result;
}

}  // namespace athanor::inline tuning
