#include "plot/axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace athanor::inline plot {
namespace {

// Returns 1, 2 or 5 times a power of ten, so that the range has at most `most_ticks` such distances.
double tick_distance(double range, int most_ticks) {
  const double least = range / most_ticks, power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= least * (1 - 1e-9)) return power * factor;
  }
  return power * 10;
}

// Ticks share one unit, so that they read as one scale.
struct Unit {
  double size;
  const char* name;
};

Unit unit_of(double largest) {
  constexpr double kLeast = 10'000;
  if (largest < kLeast) return {1, ""};
  if (largest < 1e6) return {1e3, "k"};
  if (largest < 1e9) return {1e6, "M"};
  if (largest < 1e12) return {1e9, "B"};
  return {1e12, "T"};
}

// Returns `value` with the decimals that distinguish it from the next tick.
std::string label_of(double value, double distance, const Unit& unit) {
  const double shown = value / unit.size, apart = distance / unit.size;
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(apart) - 1e-9)));
  if (shown == 0) return "0";
  if (decimals > 6 || std::abs(shown) >= 1e9) return fmt::format("{:g}", shown);
  if (decimals == 0 && std::abs(shown) >= 1000) return (shown < 0 ? "-" : "") + format_thousands(std::abs(shown));
  return fmt::format("{:.{}f}{}", shown, decimals, unit.name);
}

void add_ticks(TickedAxis& axis, double distance) {
  const Unit unit = unit_of(std::max(std::abs(axis.low), std::abs(axis.high)));
  const auto first = std::ceil(axis.low / distance - 1e-9), last = std::floor(axis.high / distance + 1e-9);
  for (double i = first; i <= last; ++i) axis.ticks.push_back({i * distance, label_of(i * distance, distance, unit)});
}

Unit time_unit(double longest_s) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 24 * kHour;
  if (longest_s < 3 * kMinute) return {1, "seconds"};
  if (longest_s < 3 * kHour) return {kMinute, "minutes"};
  if (longest_s < 3 * kDay) return {kHour, "hours"};
  return {kDay, "days"};
}

}  // namespace

void Extent::add(double value) {
  if (!std::isfinite(value)) return;
  low = std::min(low, value);
  high = std::max(high, value);
}

void Extent::add(const Extent& other) {
  add(other.low);
  add(other.high);
}

TickedAxis vertical_axis(double low, double high, int most_ticks) {
  // Below this, ticks would differ only in digits that a double does not have.
  const double least = std::max({std::abs(low), std::abs(high), 1e-300}) * 1e-9;
  if (high - low < least) {
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room;
    high += room;
  }
  constexpr double kMargin = 0.03;
  const double margin = kMargin * (high - low);
  TickedAxis axis{low >= 0 ? std::max(0.0, low - margin) : low - margin, high + margin, {}};
  add_ticks(axis, tick_distance(axis.high - axis.low, most_ticks));
  return axis;
}

TickedAxis horizontal_axis(double low, double high, int most_ticks) {
  constexpr double kNear = 0.1;  // a share of the high end
  if (low >= 0 && low <= kNear * high) low = 0;
  if (low >= high) {
    low = std::min(low, 0.0);
    high = low < high ? high : low + 1;
  }
  TickedAxis axis{low, high, {}};
  add_ticks(axis, tick_distance(high - low, most_ticks));
  return axis;
}

TickedAxis logarithmic_axis(double low, double high, int most_ticks) {
  if (low >= high) {
    low -= 0.5;
    high += 0.5;
  }
  TickedAxis axis{low, high, {}};
  const bool fine = 3 * (high - low + 1) <= most_ticks;
  const auto stride = std::max(1, static_cast<int>(std::ceil((high - low) / most_ticks)));
  for (int power = static_cast<int>(std::floor(low)); power <= static_cast<int>(std::ceil(high)); ++power) {
    if (power % stride != 0) continue;
    for (const int factor : {1, 2, 5}) {
      const double at = power + std::log10(factor);
      if (at < low - 1e-9 || at > high + 1e-9 || (factor > 1 && !fine)) continue;
      axis.ticks.push_back({at, fmt::format("{:g}", std::stod(fmt::format("{}e{}", factor, power)))});
    }
  }
  return axis;
}

TickedAxis time_axis(double low_s, double high_s, int most_ticks) {
  const Unit unit = time_unit(high_s);
  TickedAxis axis = horizontal_axis(low_s / unit.size, high_s / unit.size, most_ticks);
  axis.low *= unit.size;
  axis.high *= unit.size;
  for (Tick& tick : axis.ticks) tick.value *= unit.size;
  axis.label = unit.name + std::string(" of training");
  return axis;
}

}  // namespace athanor::inline plot
