#pragma once
// The batch that a benchmark trains on.

#include "config/run_config.h"
#include "dataset/loader.h"

namespace athanor::bench {

/// Returns one global batch of tokens from libtorch's generator, each equally likely.
Batch random_batch(const RunConfig& config);

}  // namespace athanor::bench
