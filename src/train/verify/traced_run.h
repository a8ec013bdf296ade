#pragma once
// The steps of the small run, recorded.

#include "train/verify/trace.h"

namespace athanor {

/// Initialises, takes config.train.steps steps on batches of `draw`, and records numbers, gradients and parameters.
/// Collective over the mesh. @param mesh  null: one rank, whoever started it.
Trace trace_run(const RunConfig& config, uint64_t draw, const Mesh* mesh);

}  // namespace athanor
