#pragma once
// How many tokens go to each of the ranks that share the experts.

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns the number of tokens that have a choice on each rank, int64 [..., num_ranks], where the choices are.
/// @param expert_ids_TK  int64 [..., T, K]; ids outside of [0, experts_per_rank · num_ranks) go nowhere.
Tensor tokens_per_rank(const Tensor& expert_ids_TK, int64_t experts_per_rank, int64_t num_ranks);

}  // namespace athanor::ops
