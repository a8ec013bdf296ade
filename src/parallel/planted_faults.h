#pragma once
// Faults of reduction that tests plant (base/fault.h), to see that `athanor verify` names them. Inert unless armed.

#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor {

/// Before a bucket is summed. `values` [bucket.range] in the type that travels.
///   grad.missing_reduction  the first bucket's gradients of other ranks are lost
///   grad.doubled_reduction  the first bucket is summed twice
///   grad.wrong_group        experts are summed over all data ranks, which hold other experts
///   grad.wrong_scale        the last bucket is averaged instead of summed
///   grad.router_unsynchronised  routers' gradients of other ranks are lost
void plant_before_reduction(const Bucket& bucket, const Tensor& values, const ShardPlan& plan,
                            const std::vector<BucketEntry>& table);

/// Whether what is added up beside data ranks (ShardPlan) is left out.
///   sequence.norm_unsynchronised  group partial
///   pipeline.tied_once            group tied: of embedding and output one alone counts
bool plant_instead_of_adding(const Bucket& bucket);

}  // namespace athanor
