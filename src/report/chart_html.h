#pragma once
// A chart as a part of a page: its pictures, its values for the pointer, and a table for those who read instead.

#include <string>

#include "report/chart.h"

namespace athanor::inline report {

/// @param id  unique in the page.
std::string chart_figure(const Chart& chart, const std::string& id);
std::string heat_map_figure(const HeatMap& map, const std::string& id);

}  // namespace athanor::inline report
