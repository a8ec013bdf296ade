#pragma once
// Gathers updated weights to every rank that reads them, ahead of their use.

#include <vector>

#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor::inline parallel {

class WeightGatherer {
 public:
  /// The references must outlive this.
  WeightGatherer(const ParameterStore& parameters, const ShardPlan& plan) : parameters_(parameters), plan_(plan) {}

  /// Starts to gather the weights of a bucket that forward reads (ParameterStore::compute), when this rank's owned part
  /// has its new values. Collective over GroupPlan::gather, whose ranks start their buckets in one order. The gather
  /// continues while other buckets are updated and forward runs.
  void start(const Bucket& bucket);
  /// Waits until all weights with a BucketEntry::forward_index of at most `forward_index` have arrived.
  /// @throws CommError.
  void wait(int64_t forward_index);
  /// Waits for everything that was started.
  void wait_all();
  /// Returns the number of buckets that were started and not waited for.
  int64_t num_on_the_way() const { return std::ssize(in_flight_); }

 private:
  struct InFlight {
    int64_t first_forward_index;
    comm::Pending pending;
  };

  const ParameterStore& parameters_;
  const ShardPlan& plan_;
  std::vector<InFlight> in_flight_;
};

}  // namespace athanor::inline parallel
