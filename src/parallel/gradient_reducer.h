#pragma once
// Sums gradients over ranks, bucket by bucket, while backward continues.

#include <string>
#include <vector>

#include "parallel/observer.h"
#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor {

/// The bytes that a step's reduction sent in the first of its collectives (GroupPlan::scatter or GroupPlan::sum).
struct ReductionTrace {
  int64_t bytes = 0;                   ///< in all buckets
  int64_t bytes_sent_in_backward = 0;  ///< in buckets whose sum was complete when backward ended
};

/// Returns the name of a bucket for observers, from its number in the store and its replication kind:
/// "buckets.7.dense".
std::string bucket_place(const ParameterStore& parameters, const Bucket& bucket);

class GradientReducer {
 public:
  /// @param reduce_type  fp32, or bf16: gradients are rounded before they are sent, added in fp32, and rounded again.
  /// @param observers    null: none.
  GradientReducer(const ParameterStore& parameters, const ShardPlan& plan, at::ScalarType reduce_type,
                  const Observers* observers = nullptr);

  /// To be called in the last microbatch's backward when gradients of `forward_index`
  /// (BucketEntry::forward_index) and of larger ones are final. Starts the buckets that are complete, later ones first.
  /// The indices come in descending order. Collective: every rank's backward visits them in one order.
  void ready(int64_t forward_index);

  /// To be called after backward. Waits until the gradients that this rank owns are summed, and sets the others to
  /// zero.
  void finish();

  const ReductionTrace& trace() const { return trace_; }

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
  size_t left_;  // buckets [0, left_) are not started
  std::vector<InFlight> in_flight_;
  ReductionTrace trace_;
};

}  // namespace athanor
