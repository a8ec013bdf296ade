#pragma once
// Sums gradients over ranks, bucket by bucket, while backward continues.

#include <string>
#include <utility>
#include <vector>

#include "parallel/observer.h"
#include "parallel/parameters.h"
#include "parallel/reduction_clock.h"
#include "parallel/shard_plan.h"

namespace athanor::inline parallel {

/// Returns the name of one of the store's buckets for observers, from its index in buckets() and its replication kind:
/// "buckets.7.dense".
std::string bucket_place(const ParameterStore& parameters, const Bucket& bucket);

/// Looks at gradients before they are summed over ranks.
class BucketObserver {
 public:
  virtual ~BucketObserver() = default;
  /// Called before the sum of a bucket begins, when this rank's own gradients of it, in ParameterStore::grad, are
  /// final. It must not change them.
  virtual void before_sum(const Bucket& bucket) = 0;
};

/// Reduces the gradients of ParameterStore::grad in place: a step calls ready() several times, then finish().
class GradientReducer {
 public:
  /// The references must outlive this.
  /// @param reduce_type  fp32, or bf16: gradients are rounded before they are sent, and each sum over a group is added
  ///                     in fp32 and rounded again.
  /// @param observers    null: none.
  GradientReducer(const ParameterStore& parameters, const ShardPlan& plan, at::ScalarType reduce_type,
                  const Observers* observers = nullptr);

  /// To be called in the last microbatch's backward when gradients of `forward_index`
  /// (BucketEntry::forward_index) and of larger ones are final. Starts the sums of buckets whose gradients are all
  /// final, later buckets first, and returns without waiting. Indices descend from call to call. Collective: the ranks
  /// that reduce a bucket together start their buckets in one order.
  void ready(int64_t forward_index);

  /// To be called after backward. Starts the remaining buckets, waits until the gradients that this rank owns are
  /// summed, and sets the others to zero. Collective. @throws CommError.
  void finish();

  /// Shows each bucket to `observer` from now on; null: to none. To be called between steps.
  void show_buckets_to(BucketObserver* observer) { bucket_observer_ = observer; }

  /// Returns the trace of the last step. On a device: to be called when the host has waited for the step.
  ReductionTrace trace() const { return clock_.trace(); }

 private:
  struct InFlight {
    const Bucket* bucket;
    Tensor values;  // the whole bucket, in the type that travels
    comm::Pending pending;
  };

  void start(const Bucket& bucket);
  void start_second(InFlight& flight);
  void start_over_replicas(InFlight& flight);
  void keep_owned(const InFlight& flight);
  Tensor owned_values(const InFlight& flight) const;
  void tell(const Bucket& bucket, Observation::Phase phase, const Tensor& values) const;

  const ParameterStore& parameters_;
  const ShardPlan& plan_;
  at::ScalarType type_;
  const Observers* observers_;
  BucketObserver* bucket_observer_ = nullptr;
  size_t left_;  // buckets [0, left_) are not started
  std::vector<InFlight> in_flight_;
  ReductionClock clock_;
};

}  // namespace athanor::inline parallel
