#pragma once
// What a layout asks of world, experts and batch. The list of all faults is find_layout_faults in layout.h.

#include <cstdint>
#include <optional>

#include "config/run_config.h"

namespace athanor {

/// data_parallel_shard_degree with −1 resolved; nothing if what is left of the ranks is no whole number.
std::optional<int64_t> resolve_shard_degree(const ParallelismConfig& parallelism, int64_t world_size);

/// How many microbatches a balance group spans, each on a data rank of its own; 1 where it fits into one.
int64_t count_balance_ranks(const RunConfig& config);

}  // namespace athanor
