#pragma once
// The single checks of a layout against world size, experts and batch. find_layout_faults in layout.h runs all of them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline layout {

/// Returns data_parallel_shard_degree with −1 resolved; nothing if the other degrees do not divide the world size.
std::optional<int64_t> resolve_shard_degree(const ParallelismConfig& parallelism, int64_t world_size);

/// Returns the number of microbatches that a balance group spans, each on a different data rank; 1 if it fits into one,
/// or if nothing is balanced.
int64_t count_balance_ranks(const RunConfig& config);

/// Returns a line for each of heads, widths and vocabulary that cannot be cut into `degree` parts.
std::vector<std::string> find_tensor_faults(const ModelConfig& model, int64_t degree);

/// Returns a line if the tensor ranks cannot share the `seq_len` tokens of an instance; empty if `seq_len` is 0, i.e.
/// not known yet.
std::vector<std::string> find_sequence_faults(const ParallelismConfig& parallelism, int64_t seq_len);

}  // namespace athanor::inline layout
