#pragma once
// One optimizer step.

#include <cstdint>

#include "dataset/loader.h"
#include "train/metrics.h"
#include "train/step_guard.h"
#include "train/train_state.h"

namespace athanor {

struct StepReport {
  int64_t step = 0;  ///< number of this update, 1-based
  LossParts parts;   ///< for the whole batch
  double grad_norm = 0;
  RankNorms rank_norms;  ///< parts of the norm, by data rank and by expert rank; empty for one rank
  double lr = 0;
  int64_t changed = 0;  ///< number of weights, as forward reads them, that the update changed
  Verdict verdict = Verdict::kApply;
  double forward_s = 0, backward_s = 0, optimizer_s = 0;
  /// the parts of these times that were waits for other ranks
  double forward_wait_s = 0, backward_wait_s = 0, optimizer_wait_s = 0;
  ReductionTrace reduction;
};

/// Runs forward and backward of every microbatch of this rank, then sums losses, gradients and their norm over the
/// ranks. Collective.
StepReport compute_gradients(TrainState& state, const Batch& batch);

/// Makes the update from what compute_gradients reported. If the guard refuses it, nothing changes.
void apply_update(TrainState& state, const Batch& batch, StepReport& report);

/// Calls both. On return the weights of the next step may still be in transit: the decoder waits for them, and so does
/// state.model.gatherer.wait_all().
StepReport train_step(TrainState& state, const Batch& batch);

}  // namespace athanor
