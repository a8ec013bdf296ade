#pragma once
// Sums gradients over ranks, bucket by bucket, while backward goes on.

#include <string>
#include <vector>

#include "parallel/observer.h"
#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor {

/// What a step's reduction sent, in the first of its phases (shard_plan.h).
struct ReductionTrace {
  int64_t bytes = 0;                   ///< of all buckets
  int64_t bytes_sent_in_backward = 0;  ///< of buckets whose sum was complete when backward ended
};

/// What observers know a bucket by: its number in the store, and its group. "buckets.7.dense".
std::string bucket_place(const ParameterStore& parameters, const Bucket& bucket);

class GradientReducer {
 public:
  /// @param reduce_type  fp32, or bf16: gradients are rounded before they are sent, added in fp32, and rounded again.
  /// @param observers    null: none.
  GradientReducer(const ParameterStore& parameters, const ShardPlan& plan, at::ScalarType reduce_type,
                  const Observers* observers = nullptr);

  /// In the last microbatch's backward: gradients at `place` (BucketEntry::place) and beyond are final. Starts the
  /// buckets that are complete, later ones first. Places come in descending order; collective, as every rank's backward
  /// takes the same way.
  void ready(int64_t place);

  /// After backward: waits until what this rank owns is summed. Gradients of what it does not own are set to zero.
  void finish();

  const ReductionTrace& trace() const { return trace_; }

 private:
  struct InFlight {
    const Bucket* bucket;
    Tensor values;  // of the whole bucket, in the type that travels
    comm::Pending pending;
  };

  void start(const Bucket& bucket);
  void start_second(InFlight& flight);
  void start_beside(InFlight& flight);
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
