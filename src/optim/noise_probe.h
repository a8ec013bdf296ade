#pragma once
// Measures, during a step, the squares from which the gradient noise scale is estimated (optim/noise_scale.h).

#include <cstdint>
#include <vector>

#include "optim/noise_scale.h"
#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor::inline optim {

/// With D data ranks, the parts of a dense parameter's gradient are the D gradients of the data ranks before their sum.
/// Those of an expert are the D / E gradients of the ranks that hold it: each has the tokens that the E data ranks of
/// one expert group sent to it. On one data rank the first of its M microbatches stands for all: Σ |g_i|² is M times
/// its square.
///
/// The parts of the model on tensor and pipeline ranks are added up, each element once. Parameters are left out of both
/// sums if a rank has no whole gradient of them before the sum over data ranks. Some have gradients that tensor or
/// pipeline ranks add up (Replication::replicas_add): norms under sequence_parallel, keys and values that tensor ranks
/// share, and a table that is embedding and output of a pipeline. The others are experts of which there is one copy (E
/// = D), if D > 1.
///
/// For each step that is measured: add() or add_first_microbatch() in backward, then finish(). It changes no gradient.
class NoiseProbe {
 public:
  /// The references must outlive this.
  NoiseProbe(const ParameterStore& parameters, const ShardPlan& plan);

  /// True if the parts are the data ranks, false if the first microbatch stands for them.
  bool over_data_ranks() const { return plan_.mesh().layout().data() > 1; }
  /// Adds this rank's gradients of a bucket, which are complete and not summed: see BucketObserver.
  void add(const Bucket& bucket);
  /// Adds all gradients of this rank, which are those of its first microbatch.
  void add_first_microbatch();
  /// Returns the sums over all ranks, [2, 2] fp64 on the model's device: a row for dense parameters and one for
  /// experts, with PartSquares::parts and whole. To be called when the gradients have been summed. The host does not
  /// wait for a device. Collective: an all-reduce of four numbers over kModel, and one over kData.
  Tensor finish();

 private:
  bool counts(const Bucket& bucket) const;
  void add_squares(FlatRange range, bool experts, int column);

  const ParameterStore& parameters_;
  const ShardPlan& plan_;
  Tensor squares_;
};

/// Returns what NoiseProbe::finish returned, when it is on the host, for dense parameters and for experts. To be called
/// in the same training phase.
std::vector<PartSquares> part_squares(const Tensor& squares, const ShardPlan& plan);

}  // namespace athanor::inline optim
