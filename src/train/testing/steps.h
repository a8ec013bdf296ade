#pragma once
// Steps that tests look into.

#include "train/train_step.h"

namespace athanor::inline train {

/// A step in which `between` is called when the gradients are there, before the update.
template <class Between>
StepReport step_with(TrainState& state, const Batch& batch, const Between& between) {
  Step step(state, batch);
  if (step.second_backward()) step.learn_from_second();
  step.compute_gradients();
  between();
  step.update();
  return step.finish();
}

/// Returns the numbers of the gradients of the next step, which are then in the buckets. Nothing is updated.
inline StepReport compute_gradients(TrainState& state, const Batch& batch) {
  Step step(state, batch);
  if (step.second_backward()) step.learn_from_second();
  step.compute_gradients();
  return step.finish();
}

}  // namespace athanor::inline train
