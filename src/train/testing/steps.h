#pragma once
// Steps that tests look into.

#include <memory>
#include <optional>

#include "train/layer_statistics.h"
#include "train/train_step.h"

namespace athanor {

/// A step with statistics of its layers, as a run has it.
/// @param metrics  set unless the update was refused.
inline StepReport observed_step(TrainState& state, const Batch& batch, bool histograms,
                                std::optional<LayerMetrics>& metrics) {
  const auto statistics = std::make_shared<LayerStatistics>(state, histograms);
  Step step(state, batch);
  if (step.second_backward()) step.learn_from_second();
  state.observers.add(statistics);
  step.compute_gradients();
  state.observers.remove(statistics);
  statistics->read_gradients();
  step.update({}, statistics.get());
  StepReport report = step.finish();
  if (report.verdict == Verdict::kApply) metrics = statistics->take(batch.num_sequences * batch.seq_len);
  return report;
}

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

}  // namespace athanor
