#pragma once
// Which part of each parameter every tensor rank holds.

#include <map>
#include <vector>

#include "layout/home_plan.h"
#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor::inline optim {

/// By tensor rank, of the parameters of `store` that tensor ranks cut (cut_dim_of_matrix); empty without tensor ranks.
using TensorParts = std::map<const BucketEntry*, std::vector<TensorPart>>;

/// Collective over kTensor: the ranks tell each other where their parts begin and how long they are.
TensorParts share_tensor_parts(const ParameterStore& store, const ShardPlan& shards);

}  // namespace athanor::inline optim
