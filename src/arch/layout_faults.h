#pragma once
// What a layout asks of world, experts and batch. The list of all faults is find_layout_faults in layout.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// Are the model's fields its own? Those of a model that comes from a folder are defaults until it is read.
bool is_resolved(const ModelConfig& model);

/// data_parallel_shard_degree with −1 resolved; nothing if what is left of the ranks is no whole number.
std::optional<int64_t> resolve_shard_degree(const ParallelismConfig& parallelism, int64_t world_size);

/// How many microbatches a balance group spans, each on a data rank of its own; 1 where it fits into one.
int64_t count_balance_ranks(const RunConfig& config);

/// Heads, widths and vocabulary that cannot be cut in `degree` parts (arch/tensor_faults.cpp).
std::vector<std::string> find_tensor_faults(const ModelConfig& model, int64_t degree);

/// Instances whose tokens the tensor ranks cannot share; of 0 tokens (not known yet): none.
std::vector<std::string> find_sequence_faults(const ParallelismConfig& parallelism, int64_t seq_len);

/// "1, 2, 3, 6"; of a very large value it says that only.
std::string divisors_of(int64_t value);

}  // namespace athanor
