#pragma once
// The steps of the small run, recorded.

#include "train/verify/plants/plant.h"
#include "train/verify/trace.h"

namespace athanor {

/// Initialises, takes config.train.steps steps on batches of `draw`, and records numbers, gradients and parameters.
/// Collective over the mesh. @param mesh  null: one rank, whoever started it.
/// @param plant  null, or what is put into the run; the mesh is then of a world with it (plants/plant.h).
Trace trace_run(const RunConfig& config, uint64_t draw, const Mesh* mesh, plants::Plant* plant = nullptr);

}  // namespace athanor
