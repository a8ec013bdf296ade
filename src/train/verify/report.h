#pragma once
// The output of `athanor verify`.

#include <string>

#include "train/verify/compare.h"

namespace athanor {

/// Returns the table: for each quantity the comparison that came closest to its bound.
std::string comparison_table(const Comparisons& comparisons, Reference reference);

/// Returns the layout: "12 ranks: replicate 1 × shard 12, expert 12".
std::string describe_layout(const RunConfig& small, int world_size);

/// Returns the run: "olmoe, 12 ranks: replicate 1 × shard 12, expert 12; ..." and the small model's sizes.
std::string describe_small_run(const RunConfig& small, int world_size);

}  // namespace athanor
