#include "train/usual_level.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace athanor::inline train {
namespace {

constexpr double kDistances = 5;

Usual usual_of(const std::deque<double>& values, size_t last = UsualLevel::kWindow) {
  std::vector<double> sorted(values.end() - static_cast<std::ptrdiff_t>(std::min(last, values.size())), values.end());
  std::ranges::sort(sorted);
  return {sorted[sorted.size() / 2], sorted[sorted.size() * 95 / 100]};
}

double limit_of(const std::deque<double>& values, double least) {
  const auto [median, high] = usual_of(values);
  return std::max(median + kDistances * (high - median), least * median);
}

std::string percent_above(double value, double other) {
  if (other <= 0) return "above";
  return value >= 10 * other ? fmt::format("{:.3g} times", value / other)
                             : fmt::format("{:.3g}% above", 100 * (value / other - 1));
}

}  // namespace

std::string LevelRise::text() const {
  const std::string how =
      is_slow ? fmt::format("the {} has risen slowly: the median of the last {} steps is {:.4g}", of,
                            UsualLevel::kLeast, now)
              : fmt::format(
                    "the {} stays high: {} steps in a row are above the limit, and {:.4g} is taken for the new "
                    "level",
                    of, UsualLevel::kLasting, now);
  return fmt::format(
      "{}, {} the last level ({:.4g}) and {} the lowest ({:.4g}, after step {}). If the data have not changed and it "
      "rises again, the run diverges: go back to an earlier checkpoint, and lower optimizer.lr",
      how, percent_above(now, before), before, percent_above(now, lowest), lowest, lowest_step);
}

double UsualLevel::limit() const {
  if (recent.size() < kLeast) return std::numeric_limits<double>::infinity();
  const double usual = limit_of(recent, least);
  return beyond.size() + 1 < kLasting ? usual : std::max(usual, limit_of(at_new_level(), least));
}

// While values are borrowed, these have the spread of before, and those after them may be those of a rise.
std::deque<double> UsualLevel::at_new_level() const {
  const auto first = borrows ? recent.begin() : recent.end() - kLeast;
  std::deque<double> values(first, first + kLeast);
  std::vector<double> row(beyond.begin(), beyond.end());
  std::ranges::sort(row);
  const double level = row[row.size() / 4], median = usual_of(values).median;
  for (double& value : values) value = median > 0 ? value * (level / median) : level;
  return values;
}

void UsualLevel::add(double value) {
  recent.push_back(value);
  if (recent.size() > kWindow) recent.pop_front();
  if (borrows && recent.size() == 2 * kLeast) {
    recent.erase(recent.begin(), recent.begin() + kLeast);
    borrows = false;
  }
  if (!before.empty()) undo_rise(value);
}

// Takes the level of before the rise for the usual one again, if the last values are.
void UsualLevel::undo_rise(double value) {
  returned.push_back(value);
  if (value > limit_of(before, least)) returned.clear();
  if (returned.size() == kLasting) {
    recent = std::move(before);
    recent.insert(recent.end(), returned.begin(), returned.end());
    while (recent.size() > kWindow) recent.pop_front();
    borrows = false;
  } else if (recent.size() < kWindow) {
    return;
  }
  before.clear();
  returned.clear();
}

// A level that falls is the last one, too, so that a later rise is told from there.
std::optional<LevelRise> UsualLevel::note_level(int64_t step, bool has_risen) {
  if (recent.size() < kLeast) return std::nullopt;
  const Usual whole = usual_of(recent), lately = usual_of(recent, kLeast);
  if (lowest_step == 0 || whole.median < lowest) {
    lowest = whole.median;
    lowest_step = step;
  }
  if (told.median == 0 || (whole.median < told.median && lately.median < told.median)) told = whole;
  const bool rises_slowly = tells_slow_rises && !borrows && lately.median > std::max(told.high, least * told.median);
  if (!has_risen && !rises_slowly) return std::nullopt;
  return LevelRise{name, std::exchange(told, lately).median, lately.median, lowest, lowest_step, !has_risen};
}

std::optional<LevelRise> UsualLevel::take(int64_t step, double value, bool repeats) {
  if (value > limit()) {
    beyond.push_back(value);
    if (beyond.size() >= kLasting) beyond.pop_front();
    return std::nullopt;
  }
  const bool has_risen = recent.size() >= kLeast && value > limit_of(recent, least);
  if (has_risen) {
    std::deque<double> risen = at_new_level();
    if (before.empty()) before = std::move(recent);
    recent = std::move(risen);
    borrows = true;
    returned.clear();
  }
  if (has_risen || !repeats) beyond.clear();
  add(value);
  return note_level(step, has_risen);
}

std::string UsualLevel::describe(double value) const {
  const auto [median, high] = usual_of(recent);
  return fmt::format(
      "the {} is {:.4g}, above {:.4g}; the median of the last {} steps is {:.4g}, and 95% are below {:.4g}", name,
      value, limit(), recent.size(), median, high);
}

}  // namespace athanor::inline train
