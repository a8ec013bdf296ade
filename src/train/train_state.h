#pragma once
// The state of a training run has three parts: the model, the optimizer, and the position of the run. Only what is in
// here can change the next step.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/text_template.h"
#include "config/training_stages.h"
#include "dataset/loader.h"
#include "dataset/mixture.h"
#include "model/model_state.h"
#include "optim/optimizer_set.h"
#include "parallel/compute_clock.h"
#include "parallel/gradient_reducer.h"
#include "train/run_phases.h"
#include "train/spikes.h"

namespace athanor::inline train {

/// The identity of the tokens that a model learns to read. Checkpoints store it, so that a run is not continued with
/// other tokens.
struct DataIdentity {
  std::string tokenizer_hash;
  uint32_t eos_id = 0;
  TextTemplate text_template = {};  ///< what stands around each document, the end-of-document token apart
};

/// What turns gradients into the weights of the next step.
struct OptimizerState {
  OptimizerState(const RunConfig& config, ModelState& model, OptimizerSetup setup, const Observers* observers);

  /// Sets fresh_since, here and in the optimizers: for each parameter of the model, on whichever rank, whose optimizer
  /// state has not been kept since step 0, the step after which it was zero. The number of updates that the state has
  /// had is the number of steps since then.
  void set_fresh_since(std::map<std::string, int64_t> step_of_parameter);
  GradientReducer reducer;
  OptimizerSet set;
  std::map<std::string, int64_t> fresh_since;  ///< see set_fresh_since
};

/// A part of a run with settings of its own (config/training_stages.h): the updates begin + 1 to end, counted from 1.
struct TrainingPhase {
  std::string name;
  int64_t begin = 0, end = 0;
  int64_t schedule_begin = 0;  ///< updates before the first one of the schedule of the learning rate
};

/// How far a run has come.
struct RunPosition {
  int64_t step = 0;  ///< number of updates so far
  int64_t tokens_seen = 0;
  DataLedger ledger;    ///< records what has been drawn from each source
  TrainingPhase phase;  ///< the phase that was entered last
  Spikes spikes;        ///< what its losses and gradient norms have been, in this phase and mix of data
};

/// What a run is built with in addition to its configuration. `athanor train` leaves these empty.
struct TrainStateOptions {
  Observers observers = {};
  at::Device device = at::kCPU;  ///< see ModelStateOptions
  /// See ModelStateOptions.
  std::function<std::unique_ptr<Stage>(Stage& stage, const StageLayers& layers, const Mesh& mesh)> wrap_stage = {};
  /// Optimizers in place of those that the configuration names.
  std::optional<OptimizerSetup> optimizers = {};
};

/// The microbatches of a step that has not begun, on their way to the device.
struct SentAhead {
  int64_t step = 0;
  DataLedger next;  ///< Batch::next of their batch, by which it is recognised
  std::vector<Microbatch> microbatches;
};

/// The part of the state that one rank holds.
struct TrainState {
  /// Allocates parameters, gradients and the optimizers' state, all zero, and enters the first training phase. The
  /// caller initialises or loads the parameters before the first step. Collective as ModelState and OptimizerSet.
  /// @param mesh  the mesh of the ranks that train; must outlive the state.
  TrainState(const RunConfig& run, DataIdentity data_identity, Mesh& mesh, TrainStateOptions options = {});
  /// Creates the state of a process that trains alone, even if a launcher started it together with others.
  TrainState(const RunConfig& run, DataIdentity data_identity, TrainStateOptions options = {});

  /// Enters the training phase that the next step belongs to: from now on its configuration and layout are in force.
  void enter(const TrainingStage& phase);

  const RunConfig run_config;  ///< the whole run's, as it was started: what checkpoints record
  RunConfig config;            ///< in force: the training phase's, whose train.steps are the phase's
  DataIdentity data;
  /// The configuration, as TOML, with which the update at which the state was loaded was made; "" if that is not known.
  std::string earlier_config;

 private:
  std::unique_ptr<OneRank> alone_;

 public:
  bool has_graphs = false;  ///< steps are launched as recorded graphs (train/captured_stage.h) unless they are observed
  Observers observers;      ///< observers of every step; more may be added between steps
  ModelState model;
  OptimizerState optimizer;
  RunPosition position;
  RunPhases phases;

  std::optional<SentAhead> ahead;  ///< what was sent for the next step (Step::send_ahead)
  /// On a device, if set: measures how long it computes in each step (StepReport::device_s).
  std::shared_ptr<ComputeClock> compute_clock;

 private:
  TrainState(const RunConfig& run, DataIdentity data_identity, std::unique_ptr<OneRank> alone, Mesh* shared,
             TrainStateOptions options);
  ModelStateOptions model_options(const TrainStateOptions& options);
};

}  // namespace athanor::inline train
