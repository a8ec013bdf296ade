#include "verify/traced_run.h"

#include <algorithm>

#include "arch/width_scaling.h"
#include "model/initialize.h"
#include "record/run_folder.h"
#include "saves/checkpointing.h"
#include "train/state_pieces.h"
#include "verify/record_copies.h"
#include "verify/second_backwards.h"
#include "verify/small_model.h"

namespace athanor::inline verify {
namespace {

void initialize(TrainState& state, Trace& trace) {
  initialize_parameters(state.config.model, static_cast<uint64_t>(state.config.train.seed), state.model.parameters,
                        width_ratio(state.config.optimizer, state.config.model));
  trace.add_pieces(0, state_pieces(state));
}

void record_steps(TrainState& state, int64_t last, uint64_t draw, Trace& trace) {
  const RunConfig& config = state.config;
  for (int64_t number = state.position.step + 1; number <= last; ++number) {
    const Batch batch = make_verify_batch(config, number, draw);
    Step step(state, batch);
    record_second_backward(state, step, trace);
    step.compute_gradients();
    trace.add_pieces(number, gradient_pieces(state.model));
    add_gradient_copies(state.model, fmt::format("step {}: the summed gradient", number), trace);
    step.update();
    trace.add_step(step.finish());
    state.model.gatherer.wait_all();
    trace.add_pieces(number, state_pieces(state));
    add_copies(state.model, number, trace);
  }
}

}  // namespace

Trace trace_run(const RunConfig& config, uint64_t draw, Mesh* mesh, plants::Plant* plant, at::Device device) {
  Trace trace;
  TrainStateOptions options = plant ? plants::planted_options(*plant) : TrainStateOptions{};
  options.device = device;
  if (mesh) {
    TrainState state(config, {}, *mesh, options);
    if (plant) plant->watch(state);
    initialize(state, trace);
    record_steps(state, config.train.steps, draw, trace);
  } else {
    TrainState state(config, {}, options);
    initialize(state, trace);
    record_steps(state, config.train.steps, draw, trace);
  }
  return trace;
}

Trace trace_reference(const RunConfig& config, uint64_t draw, const WholeTrace& layout) {
  Trace trace;
  TrainState state(config, {});
  initialize_parameters(config.model, static_cast<uint64_t>(config.train.seed), state.model.parameters,
                        width_ratio(config.optimizer, config.model));
  trace.add_pieces(0, master_pieces(state.model));
  for (int64_t number = 1; number <= std::min(config.train.steps, layout.num_steps()); ++number) {
    load_master(state.model, state.config.checkpoint.load,
                [&](const std::string& name, int64_t first, std::span<float> out) {
                  const auto& values = layout.values(number - 1, "master", name);
                  // A parameter that no rank holds is reported as such; it is zero here.
                  for (size_t i = 0; i < out.size(); ++i) {
                    const size_t index = static_cast<size_t>(first) + i;
                    out[i] = index < values.size() ? values[index] : 0;
                  }
                });
    const Batch batch = make_verify_batch(config, number, draw);
    Step step(state, batch);
    record_second_backward(state, step, trace, &layout);
    step.compute_gradients();
    trace.add_pieces(number, gradient_pieces(state.model));
    step.update();  // for the state that routers carry to the next step
    trace.add_step(step.finish());
  }
  return trace;
}

Trace trace_resumed_run(const RunConfig& first, Mesh& first_mesh, const RunConfig& second, Mesh& second_mesh,
                        uint64_t draw, at::Device device) {
  const int64_t half = (first.train.steps + 1) / 2;
  Trace trace;
  {
    TrainState state(first, {}, first_mesh, {.device = device});
    initialize(state, trace);
    record_steps(state, half, draw, trace);
    save_checkpoint(state);
  }
  TrainState state(second, {}, second_mesh, {.device = device});
  const auto loaded = load_newest_checkpoint(state, RunFolder{first.train.run_dir}.checkpoints());
  ATHANOR_CHECK_CHECKPOINT(loaded.has_value(), "{}: the checkpoint of step {} is missing", first.train.run_dir, half);
  record_steps(state, second.train.steps, draw, trace);
  return trace;
}

}  // namespace athanor::inline verify
