#pragma once
// How large a number of the steps usually is (a loss, a gradient norm), so that a value far above it is noticed.
//
// A value is beyond the limit if two things hold: it is above the median of the last 128 values by more than 5 times
// the distance from there to the 95th percentile, and above `least` times the median. For noise with a normal
// distribution that is about 8 standard deviations. Nothing is beyond before there are 32 values, and what is beyond is
// not among them.
//
// A rise that lasts is no row of outliers. After four values in a row that are beyond, the level is tried to which they
// would belong: that of their lower quartile, which an outlier among them does not move, with the spread that the
// values had before. A fifth one that is within the limit of this level makes it the new one. One that is beyond it,
// too, does not: values that grow faster and faster are never a level. The spread of before is used until there are 32
// values of the new level, so that an outlier among these is found. If five values in a row are within the limit of
// before the rise, and no 128 have come since, it was a long outlier, and nothing of it remains.
//
// Since a level may rise in small parts, each rise has its distance from the lowest level, too.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace athanor::inline train {

/// The median of some values, and what 95 of 100 of them are not above.
struct Usual {
  double median = 0, high = 0;
};

/// The level has risen, and has stayed there.
struct LevelRise {
  const char* of = "";         ///< "loss" or "gradient norm"
  double before = 0, now = 0;  ///< the last level, and this one
  double lowest = 0;           ///< the lowest level since this history began
  int64_t lowest_step = 0;     ///< the step after which it was reached
  bool is_slow = false;        ///< no value was beyond the limit
  std::string text() const;    ///< a line for people, with these numbers
};

struct UsualLevel {
  static constexpr size_t kWindow = 128, kLeast = 32, kLasting = 5;

  const char* name = "";
  double least = 1;               ///< the limit is at least this many times the median
  bool tells_slow_rises = false;  ///< see take
  std::deque<double> recent = {};
  bool borrows = false;              ///< the first kLeast of `recent` are older values, moved to a new level
  std::deque<double> before = {};    ///< what `recent` was before a rise, while fewer than kWindow values came since
  std::deque<double> returned = {};  ///< the last values, fewer than kLasting, that were usual before that rise
  std::deque<double> beyond = {};    ///< the last ones, at most kLasting - 1, that were beyond in a row
  double lowest = 0;                 ///< the lowest median so far
  int64_t lowest_step = 0;           ///< the step after which it was reached; 0 while there are too few values
  Usual told = {};                   ///< the level of the last rise, or a lower one since

  /// Returns the limit for the next value; infinite as long as there are too few.
  double limit() const;
  /// Takes the value of a step.
  /// @param repeats  the step comes again, so that a usual value ends no row of values that are beyond.
  /// @return a rise if the value makes another level the usual one; with tells_slow_rises also if the median
  ///         of the last kLeast values is above the 95th percentile of the last level, and `least` times its median.
  std::optional<LevelRise> take(int64_t step, double value, bool repeats);
  /// Returns the clause "the loss is 4, above 3.4; ..." for a value that is beyond the limit.
  std::string describe(double value) const;

 private:
  std::deque<double> at_new_level() const;
  void add(double value);
  void undo_rise(double value);
  std::optional<LevelRise> note_level(int64_t step, bool has_risen);
};

}  // namespace athanor::inline train
