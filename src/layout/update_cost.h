#pragma once
// What an optimizer's update sends.

#include <vector>

#include "layout/home_plan.h"
#include "layout/traffic.h"

namespace athanor::inline layout {

struct UpdateCost {
  /// LAMB: the squared norms of all matrices of the model, 16 bytes for each, over kModel and then over kData. Muon:
  /// the exchanges of the home plan over kData and over kTensor.
  std::vector<RankTraffic> sent;
  /// Second backwards in a step: 1 / optimizer.hessian_interval with Sophia-G, else 0. Each sends what the step's
  /// backward and forward send, without weights.
  double second_backwards = 0;
};

/// Returns the cost for a rank of the world.
/// @param table    what the rank holds, as laid out by lay_out_buckets.
/// @param buckets  those of the table.
/// Time: with Muon that of plan_homes.
UpdateCost count_update_cost(const RunConfig& config, const Layout& layout, int rank,
                             const std::vector<BucketEntry>& table, const std::vector<Bucket>& buckets);

}  // namespace athanor::inline layout
