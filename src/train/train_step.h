#pragma once
// One optimizer step.

#include <cstdint>

#include "data/loader.h"
#include "train/metrics.h"
#include "train/step_guard.h"
#include "train/train_state.h"

namespace athanor {

struct StepReport {
  int64_t step = 0;  ///< number of this update, 1-based
  LossParts parts;   ///< of the whole batch
  double grad_norm = 0;
  RankNorms rank_norms;  ///< its parts, by data rank and by expert rank; empty for one rank
  double lr = 0;
  int64_t changed = 0;  ///< weights that the update changed, as forward reads them
  Verdict verdict = Verdict::kApply;
  double forward_s = 0, backward_s = 0, optimizer_s = 0;
  double forward_wait_s = 0, backward_wait_s = 0, optimizer_wait_s = 0;  ///< of these, waited for other ranks
  ReductionTrace reduction;
};

/// Forward and backward of every microbatch of this rank; then losses, gradients and their norm are summed over ranks.
/// Collective.
StepReport compute_gradients(TrainState& state, const Batch& batch);

/// The update by what compute_gradients reported. Where the guard refuses, nothing moves.
void apply_update(TrainState& state, const Batch& batch, StepReport& report);

/// Both. The weights of the next step may still be on their way: the decoder waits for them, and
/// state.gatherer.wait_all() does.
StepReport train_step(TrainState& state, const Batch& batch);

}  // namespace athanor
