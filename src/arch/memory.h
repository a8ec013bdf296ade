#pragma once
// What a training process will hold, before it holds it.

#include <cstdint>

#include "config/run_config.h"

namespace athanor {

struct MemoryNeed {
  double state_bytes = 0;       ///< master (the weights are in it), moments, gradients
  double activation_bytes = 0;  ///< kept for backward, one microbatch
  double transient_bytes = 0;   ///< the largest scratch: a chunk of logits and its gradient, or one layer's backward
  double total() const { return state_bytes + activation_bytes + transient_bytes; }
};

/// One process that holds the whole model; `seq_len` as resolved from the data.
MemoryNeed estimate_train_memory(const RunConfig& config, int64_t seq_len);

}  // namespace athanor
