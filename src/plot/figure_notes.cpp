#include "plot/figure_notes.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "plot/figure_axes.h"

namespace athanor::inline plot {
namespace {

void add_colours(const Figure& figure, std::vector<std::string>& notes) {
  const HeatMap& map = figure.heat_map;
  const Extent extent = map.extent(), scale = map.scale.value_or(extent);
  if (extent.is_empty()) return;
  notes.push_back(
      fmt::format("The palest colour is {:.3g}, the darkest {:.3g} ({}).", scale.low, scale.high, figure.unit));
  notes.push_back(fmt::format("The values are from {:.3g} to {:.3g}.", extent.low, extent.high));
  notes.push_back(fmt::format("Rows are {}s, from 0 at the top; a field is the mean over its steps.", map.row_name));
}

}  // namespace

std::string smoothing_note(const Figure& figure) {
  size_t least = SIZE_MAX, most = 0;
  for (const Curve& curve : figure.curves) {
    if (!curve.has_points()) continue;
    least = std::min(least, curve.window);
    most = std::max(most, curve.window);
  }
  if (most <= 1) return "";
  const auto shown = [](size_t window) { return format_thousands(static_cast<double>(window)); };
  return fmt::format("Each line is the mean over {} steps",
                     least == most ? shown(most) : shown(least) + " to " + shown(most));
}

std::vector<std::string> notes_of(const Figure& figure) {
  std::vector<std::string> notes = figure.notes;
  if (const std::string smoothing = smoothing_note(figure); !smoothing.empty())
    notes.insert(notes.begin(), smoothing + "; the pale one has every step.");
  if (const auto outside = values_outside(figure))
    notes.push_back(fmt::format("Single steps lie outside of the picture: all are between {:.4g} and {:.4g}.",
                                outside->low, outside->high));
  if (figure.is_heat_map()) add_colours(figure, notes);
  return notes;
}

}  // namespace athanor::inline plot
