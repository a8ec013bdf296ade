#pragma once
// Runs the steps of a small run with the portable forms in fp64: decoder, losses and backward, recorded in the same way
// as trace_reference records the steps of the training code. It also shows errors in that code that one rank makes too.
// (Updates are compared with the layout's own gradients: own_gradients.h.)
//
// It shares with the training code the configuration, the names and shapes of parameters, the batches, and random
// numbers as functions of counters, but no computation. Learning rates are constant, as they are in small runs.

#include "verify/trace.h"

namespace athanor::inline verify {

/// Runs in this process alone and sends nothing. Each step begins with the parameters that `layout` had before that
/// step.
/// @param config  a small run (small_model.h), of any layout: degrees have no effect; train.micro_batch_size has one if
/// moe.aux_scope pools over a microbatch.
Trace trace_portable_run(const RunConfig& config, uint64_t draw, const WholeTrace& layout);

}  // namespace athanor::inline verify
