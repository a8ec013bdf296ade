#include "train/train_state.h"

#include "config/precision.h"
#include "ops/tensor.h"
#include "record/run_folder.h"
#include "train/captured_stage.h"

namespace athanor::inline train {

OptimizerState::OptimizerState(const RunConfig& config, ModelState& model, OptimizerSetup setup,
                               const Observers* observers)
    : reducer(model.parameters, model.plan, ops::scalar_type(precision_of(config).reduce), observers),
      set(std::move(setup), config.model, model.parameters, model.plan) {}

void OptimizerState::set_fresh_since(std::map<std::string, int64_t> step_of_parameter) {
  fresh_since = std::move(step_of_parameter);
  set.set_fresh_since(fresh_since);
}

TrainState::TrainState(const RunConfig& run, DataIdentity data_identity, Mesh& shared, TrainStateOptions options)
    : TrainState(run, std::move(data_identity), nullptr, &shared, std::move(options)) {}

TrainState::TrainState(const RunConfig& run, DataIdentity data_identity, TrainStateOptions options)
    : TrainState(run, std::move(data_identity), std::make_unique<OneRank>(run), nullptr, std::move(options)) {}

TrainState::TrainState(const RunConfig& run, DataIdentity data_identity, std::unique_ptr<OneRank> alone, Mesh* shared,
                       TrainStateOptions options)
    : run_config(run), config(training_stages(run).front().config), data(std::move(data_identity)),
      alone_(std::move(alone)), observers(std::move(options.observers)),
      model(config, shared ? *shared : alone_->mesh, model_options(options)),
      optimizer(config, model, options.optimizers ? std::move(*options.optimizers) : configured_optimizers(run),
                &observers) {
  if (optimizer.set.qk_clip()) observers.add(optimizer.set.qk_clip());
  enter(training_stages(run).front());
}

ModelStateOptions TrainState::model_options(const TrainStateOptions& options) {
  return {
      .use = ParameterStore::Use::kTraining,
      .device = options.device,
      .observers = &observers,
      .wrap_stage =
          options.wrap_stage
              ? options.wrap_stage
              : [this, device = options.device](Stage& stage, const StageLayers&, const Mesh& mesh) {
                  auto captured = capture_if_wanted(run_config, stage, device, mesh.world().size(), &observers);
                  has_graphs = captured != nullptr;
                  return captured;
                },
      .dispatch_file = RunFolder{run_config.train.run_dir}.dispatch()};
}

void TrainState::enter(const TrainingStage& phase) {
  config = phase.config;
  ahead.reset();
  position.phase = {phase.name, phase.begin, phase.end(), phase.schedule_begin};
  model.enter(config);
}

}  // namespace athanor::inline train
