#pragma once
// What follows from a run's own gradients, in whatever type and layout these were computed: their norm, and every
// parameter after every step.

#include <vector>

#include "train/verify/compare.h"

namespace athanor {

/// The gradient norm that the run reports against that of the gradients it recorded, and its parameters against what
/// AdamW in double precision makes of them (adam_replay.h), from the initial ones on: an update that some rank makes of
/// other gradients, twice, or with moments that were lost on the way, is not explained by them.
/// @param small  the configuration that is right.
std::vector<Comparison> compare_with_own_gradients(const RunConfig& small, const WholeTrace& run);

}  // namespace athanor
