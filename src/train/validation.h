#pragma once
// The loss on held-out instances.

#include "config/run_config.h"
#include "data/dataset.h"
#include "parallel/mesh.h"
#include "parallel/pipeline.h"

namespace athanor {

/// Mean cross entropy per target, nats, over the first `num_sequences` instances of the split, or all if it has fewer.
/// Nothing of the training state is touched: no gradients, no counts. Collective over the mesh: data ranks share the
/// microbatches, and each has as many of them scored.
double validation_loss(Pipeline& pipeline, const Dataset& validation, int64_t num_sequences, const RunConfig& config,
                       uint32_t eos_id, const Mesh& mesh);

}  // namespace athanor
