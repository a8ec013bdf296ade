#pragma once
// Checks what follows from a run's own gradients, in whatever type and layout these were computed: their norm, and
// every parameter after every step.

#include <vector>

#include "verify/compare.h"

namespace athanor::inline verify {

/// Compares the gradient norm that the run reports with the norm of the gradients that it recorded. Its parameters (and
/// Sophia-G's Hessians) are compared with those that their optimizers compute from these gradients, in double precision
/// and from the initial parameters on (replay/replay.h). So it finds an update that some rank makes from other
/// gradients, makes twice, or makes with moments that were lost on the way. Returns one comparison for each norm, and
/// for each parameter (or expert of it) and step.
/// @param small  the model and the optimizer's settings that the run should have had.
std::vector<Comparison> compare_with_own_gradients(const RunConfig& small, const WholeTrace& run);

}  // namespace athanor::inline verify
