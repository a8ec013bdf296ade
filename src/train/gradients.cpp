#include "train/gradients.h"

#include <utility>

#include "config/due.h"

namespace athanor::inline train {

NoiseMeasurement::NoiseMeasurement(TrainState& state, int64_t step) : reducer_(state.optimizer.reducer) {
  if (!is_due(step, state.config.metrics.noise_scale_interval)) return;
  probe_.emplace(state.model.parameters, state.model.plan);
  if (probe_->over_data_ranks()) reducer_.show_buckets_to(this);
}

NoiseMeasurement::~NoiseMeasurement() { reducer_.show_buckets_to(nullptr); }

void NoiseMeasurement::ended(const Action& action) {
  if (!probe_ || probe_->over_data_ranks() || action.work != Work::kBackward || action.microbatch != 0) return;
  probe_->add_first_microbatch();
}

LossTotals run_microbatches(TrainState& s, std::span<const Microbatch> microbatches,
                            const MicrobatchMeasurements* measured) {
  PhaseSpans* const spans = s.phases.spans.get();
  GradientReducer& reducer = s.optimizer.reducer;
  s.observers.begin_gradients();
  PipelinePass pass(s.model.pipeline, microbatches);
  for (const Action& action : pass.actions()) {
    const bool is_forward = action.work == Work::kForward;
    s.phases.enter(is_forward ? board::Phase::kForward : board::Phase::kBackward, action.microbatch);
    Tensor input = pass.receive(action);
    if (spans) spans->begin_action();
    Tensor output = pass.compute(action, std::move(input), &reducer);
    if (spans) spans->end_action();
    pass.send(action, std::move(output));
    if (!measured) continue;
    auto& [report, watch, noise] = *measured;
    noise.ended(action);
    watch.add_to(is_forward ? report.forward_s : report.backward_s,
                 is_forward ? report.forward_wait_s : report.backward_wait_s);
  }
  const LossParts parts = pass.finish();
  s.phases.enter(board::Phase::kReduce);
  reducer.finish();
  s.observers.end_gradients();
  return totals_of(parts, s.model.device());
}

}  // namespace athanor::inline train
