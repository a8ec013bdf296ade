#pragma once
// The losses and counts of a step: added up over microbatches, stages and ranks, and as numbers of the host.

#include <vector>

#include "comm/communicator.h"
#include "parallel/stage.h"

namespace athanor::inline parallel {

/// Where the model is.
struct LossTotals {
  Tensor sums;  ///< fp64 [4]: loss, load-balancing loss, router z-loss (as LossParts), number of targets
  RouterCounts routers;

  Tensor loss() const { return sums[0]; }
  Tensor num_targets() const { return sums[3]; }
  std::vector<Tensor*> tensors();
};

/// @param device  of the model; a stage without loss and routers has no tensors.
LossTotals totals_of(const LossParts& parts, at::Device device);

/// Sets `totals`, on every rank, to the sum over the group's ranks, on which the same tensors must be defined.
/// Collective: two all-reduces, one of fp64, one of int64. The host does not wait for a device.
void sum_over_ranks(comm::Communicator& ranks, LossTotals& totals);

/// The same on the host.
struct LossNumbers {
  double loss_sum = 0;  ///< cross entropy over targets, nats
  double aux_sum = 0;   ///< load-balancing loss, over layers and sequences
  double z_sum = 0;     ///< router z-loss, over layers and tokens
  int64_t num_targets = 0;
  RouterCounts routers;

  /// Returns the cross entropy per target, in nats; 0 without targets.
  double mean_loss() const { return loss_sum / static_cast<double>(num_targets > 0 ? num_targets : 1); }
};
/// @param totals  on the host.
LossNumbers numbers_of(const LossTotals& totals);
/// Returns the numbers of a microbatch, for which the host waits.
LossNumbers numbers_of(LossParts parts);

}  // namespace athanor::inline parallel
