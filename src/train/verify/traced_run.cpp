#include "train/verify/traced_run.h"

#include "model/initialize.h"
#include "train/state_pieces.h"
#include "train/verify/small_model.h"

namespace athanor {
namespace {

// What forward reads. Ranks that hold the same must hold the same bits.
void add_copies(const TrainState& s, int64_t step, Trace& trace) {
  const Tensor& compute = s.parameters.compute();
  const auto size = static_cast<size_t>(compute.element_size());
  const auto* bytes = static_cast<const std::byte*>(compute.const_data_ptr());
  for (const BucketEntry& e : s.parameters.table()) {
    trace.add_copy(fmt::format("step {}: {} from {}", step, e.name, shape_text(e.offset)),
                   bytes + static_cast<size_t>(e.flat_begin) * size, static_cast<size_t>(e.num_elements()) * size);
  }
}

// Summed gradients, of what this rank updates.
void add_gradient_copies(const TrainState& s, int64_t step, Trace& trace) {
  const auto* grad = s.parameters.grad().const_data_ptr<float>();
  for (const Bucket& bucket : s.parameters.buckets()) {
    const FlatRange owned = s.plan.owned(bucket);
    for (const BucketEntry& e : s.parameters.table()) {
      const FlatRange part = intersect(e.range(), owned);
      if (part.size() == 0) continue;
      const int64_t first = part.begin - e.flat_begin;
      trace.add_copy(fmt::format("step {}: the summed gradient of {} from {}, elements {} to {}", step, e.name,
                                 shape_text(e.offset), first, first + part.size()),
                     grad + part.begin, static_cast<size_t>(part.size()) * sizeof(float));
    }
  }
}

void record_steps(TrainState& state, uint64_t draw, Trace& trace) {
  const RunConfig& config = state.config;
  initialize_parameters(config.model, static_cast<uint64_t>(config.train.seed), state.parameters);
  trace.add_pieces(0, state_pieces(state));
  for (int64_t step = 1; step <= config.train.steps; ++step) {
    const Batch batch = make_verify_batch(config, step, draw);
    StepReport report = compute_gradients(state, batch);
    trace.add_pieces(step, gradient_pieces(state));
    add_gradient_copies(state, step, trace);
    apply_update(state, batch, report);
    state.gatherer.wait_all();
    trace.add_step(report);
    trace.add_pieces(step, state_pieces(state));
    add_copies(state, step, trace);
  }
}

}  // namespace

Trace trace_run(const RunConfig& config, uint64_t draw, const Mesh* mesh, plants::Plant* plant) {
  Trace trace;
  if (mesh) {
    TrainState state(config, {}, *mesh, plant ? plants::planted_options(*plant) : TrainStateOptions{});
    if (plant) plant->watch(state);
    record_steps(state, draw, trace);
  } else {
    TrainState state(config, {});
    record_steps(state, draw, trace);
  }
  return trace;
}

}  // namespace athanor
