#pragma once
// Gathers updated weights to every rank that reads them, ahead of their use.

#include <vector>

#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor {

class WeightGatherer {
 public:
  WeightGatherer(const ParameterStore& parameters, const ShardPlan& plan) : parameters_(parameters), plan_(plan) {}

  /// Starts to gather a bucket, of which this rank's owned part has its new value. Collective; all ranks start buckets
  /// in one order. The gather continues while other buckets are updated and forward runs.
  void start(const Bucket& bucket);
  /// Waits until the weights of BucketEntry::forward_index up to `forward_index` have arrived.
  void wait(int64_t forward_index);
  void wait_all();

 private:
  struct InFlight {
    int64_t first_forward_index;
    comm::Pending pending;
  };

  const ParameterStore& parameters_;
  const ShardPlan& plan_;
  std::vector<InFlight> in_flight_;
};

}  // namespace athanor
