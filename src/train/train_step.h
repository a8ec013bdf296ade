#pragma once
// One optimizer step.

#include <cstdint>

#include "data/loader.h"
#include "train/step_guard.h"
#include "train/train_state.h"

namespace athanor {

struct StepReport {
  int64_t step = 0;  ///< number of this update, 1-based
  LossParts parts;   ///< of the whole batch
  double grad_norm = 0;
  double lr = 0;
  int64_t changed = 0;  ///< weights that the update changed, as forward reads them
  Verdict verdict = Verdict::kApply;
  double forward_s = 0, backward_s = 0, optimizer_s = 0;
};

/// Forward and backward of every microbatch, then the update. Where the guard refuses, gradients are cleared and
/// nothing else moves.
StepReport train_step(TrainState& state, const Batch& batch);

}  // namespace athanor
