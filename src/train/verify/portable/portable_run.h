#pragma once
// The steps of a small run by portable forms in fp64: decoder, losses and backward, recorded as trace_reference records
// those of the code that trains. What is wrong in one rank's code as well shows against this. (Updates are compared
// with the layout's own gradients: own_gradients.h.)
//
// It shares with that code the configuration, the names and shapes of parameters, the batches, and random numbers as
// functions of counters; nothing that computes. Learning rates are constant, as they are in small runs.

#include "train/verify/trace.h"

namespace athanor {

/// On one thread of its own making: no mesh. Each step begins with the parameters that `layout` had before it.
/// @param config  a small run (small_model.h), of any layout: degrees do not count, train.micro_batch_size does where
/// moe.aux_scope pools over a microbatch.
Trace trace_portable_run(const RunConfig& config, uint64_t draw, const WholeTrace& layout);

}  // namespace athanor
