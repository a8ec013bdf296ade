#pragma once
// The output of `athanor verify`.

#include <string>

#include "verify/compare.h"

namespace athanor::inline verify {

/// Returns the table, with a line for each quantity: the comparison that came closest to its bound, or went furthest
/// beyond it. Then come lines with the faults, the first twelve of them.
std::string comparison_table(const Comparisons& comparisons, Reference reference);

/// Returns the layout in a line, without its end: "12 ranks: replicate 1 × shard 12, expert 12; sharding ep_aware".
std::string describe_layout(const RunConfig& small, int world_size);

/// Returns three lines: the layout, the small model's family and sizes, and the steps.
std::string describe_small_run(const RunConfig& small, int world_size);

}  // namespace athanor::inline verify
