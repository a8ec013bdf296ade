#pragma once
// The loss on held-out instances.

#include "comm/communicator.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "parallel/stage.h"

namespace athanor {

/// Mean cross entropy per target, nats, over the first `num_sequences` instances of the split, or all if it has fewer.
/// Nothing of the training state is touched: no gradients, no counts. Collective over `ranks`, who share the
/// microbatches; each calls the stage equally often.
double validation_loss(Stage& stage, const Dataset& validation, int64_t num_sequences, const RunConfig& config,
                       uint32_t eos_id, comm::Communicator& ranks);

}  // namespace athanor
