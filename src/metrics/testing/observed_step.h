#pragma once
// A step with statistics of its layers.

#include <memory>
#include <optional>

#include "metrics/layer_statistics.h"
#include "train/train_step.h"

namespace athanor::inline metrics {

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

}  // namespace athanor::inline metrics
