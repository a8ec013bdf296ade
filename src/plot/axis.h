#pragma once
// The axes of a picture: a range of values, with ticks at round numbers.

#include <cmath>
#include <string>
#include <vector>

namespace athanor::inline plot {

/// The least and the largest of some values; of none, low is infinite and high is −infinite.
struct Extent {
  double low = INFINITY, high = -INFINITY;

  /// A value that is not finite changes nothing.
  void add(double value);
  void add(const Extent& other);
  bool is_empty() const { return low > high; }
};

struct Tick {
  double value;
  std::string label;
};

struct TickedAxis {
  double low = 0, high = 1;  ///< low < high
  std::vector<Tick> ticks;   ///< in increasing order, from low to high
  std::string label = {};    ///< what the values are

  /// Returns where `value` is: 0 at the low end, 1 at the high end.
  double share(double value) const { return (value - low) / (high - low); }
};

/// Returns an axis for values from `low` to `high` with at most about `most_ticks` ticks, whose distance is 1, 2 or 5
/// times a power of ten. Labels are short: 2,000, 40k, 3B, 0.0005.
/// A vertical axis leaves a margin around the values, and room around one value alone.
TickedAxis vertical_axis(double low, double high, int most_ticks);
/// A horizontal axis ends at the values, and begins at 0 if that is near.
TickedAxis horizontal_axis(double low, double high, int most_ticks);
/// A horizontal axis of decimal logarithms, whose labels are the numbers themselves: 0.001, 1e-05. Ticks are at powers
/// of ten; between two of them, if there is room, also at their double and fivefold.
TickedAxis logarithmic_axis(double low, double high, int most_ticks);
/// A horizontal axis of seconds that a run worked, whose ticks and label have the unit that its length asks for.
TickedAxis time_axis(double low_s, double high_s, int most_ticks);

}  // namespace athanor::inline plot
