#pragma once
// Runs and records the steps of the small run.

#include "verify/plants/plant.h"
#include "verify/trace.h"

namespace athanor::inline verify {

/// Initialises, takes config.train.steps steps on batches of `draw`, and records numbers, gradients, parameters and
/// optimizer state of this rank. Collective over the mesh.
/// @param mesh  null: this process alone.
/// @param plant  null, or the fault that is planted into the run; the mesh is then of a world with it (plants/plant.h).
/// @param device  of this rank; the groups of the mesh are for its tensors (Mesh::use).
Trace trace_run(const RunConfig& config, uint64_t draw, Mesh* mesh, plants::Plant* plant = nullptr,
                at::Device device = at::kCPU);

/// Runs the reference on one rank, on the CPU, even if a launcher started the process: it has the same initial
/// parameters and batches, but each step begins with the parameters that `layout` had before that step. Second
/// backwards learn from the labels that `layout` drew (second_backwards.h). Records the initial parameters, and
/// numbers, gradients and drawn labels of each step.
Trace trace_reference(const RunConfig& config, uint64_t draw, const WholeTrace& layout);

/// Takes and records the same steps as trace_run, but only the first half (rounded up) in `first`'s layout. Then it
/// saves a full checkpoint into first.train.run_dir, which `second`'s layout, on the same ranks, loads and continues
/// from. Collective over both meshes, of one world.
Trace trace_resumed_run(const RunConfig& first, Mesh& first_mesh, const RunConfig& second, Mesh& second_mesh,
                        uint64_t draw, at::Device device = at::kCPU);

}  // namespace athanor::inline verify
