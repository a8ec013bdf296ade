#pragma once
// The state of a training run: named fp32 tensors and a few numbers. Only what is in here can change the next step.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "config/training_stages.h"
#include "dataset/mixture.h"
#include "model/decoder.h"
#include "optim/optimizer_set.h"
#include "parallel/gradient_reducer.h"
#include "parallel/observer.h"
#include "parallel/pipeline.h"
#include "parallel/weight_gatherer.h"

namespace athanor {

/// The identity of the tokens that a model learns to read. Checkpoints store it, so that a run is not continued with
/// other tokens.
struct DataIdentity {
  std::string tokenizer_hash;
  uint32_t eos_id = 0;
};

/// Returns the number of elements of a bucket. parallelism.bucket_mb is in units of 10^6 bytes of fp32.
int64_t bucket_elements(const RunConfig& config);

/// Parts that a run is built with and that its configuration does not know of. `train` leaves them empty.
struct TrainStateOptions {
  Observers observers = {};
  /// Wraps a pipeline stage of this rank. The stage outlives the wrapper. May return null: no wrapper. Called once for
  /// each stage.
  std::function<std::unique_ptr<Stage>(Stage& stage, const StageLayers& layers, const Mesh& mesh)> wrap_stage = {};
  /// Optimizers in place of those that the configuration names.
  std::optional<OptimizerSetup> optimizers = {};
};

/// The part of the state that one rank holds.
struct TrainState {
  /// Allocates parameters, gradients and the optimizers' state, all zero. The caller initialises or loads them before
  /// the first step.
  /// @param mesh  the mesh of the ranks that train; must outlive the state.
  TrainState(const RunConfig& run_config, DataIdentity data_identity, const Mesh& mesh, TrainStateOptions options = {});
  /// Creates the state of a process that trains alone, even if a launcher started it together with others.
  TrainState(const RunConfig& run_config, DataIdentity data_identity, TrainStateOptions options = {});

  /// Enters the training phase that the next step belongs to: its batch, microbatches and schedule.
  void enter(const TrainingStage& next_stage);

  /// Sets each expert's share of the choices in the previous step, [sparse layers, experts] (Decoder); undefined for
  /// dense models.
  void set_previous_share(Tensor share);
  /// Sets fresh_since: for each parameter of the model, on whichever rank, whose optimizer state has not been kept
  /// since step 0, the step after which they were zero. The number of its updates is the number of steps since then.
  void set_fresh_since(std::map<std::string, int64_t> step_of_parameter);
  /// Sets the router bias; undefined if there is none. A later change of the tensor in place changes the routers.
  void set_router_bias(Tensor bias);

  RunConfig config;
  TrainingStage stage;
  DataIdentity data;

 private:
  std::unique_ptr<OneRank> alone_;

 public:
  const Mesh& mesh;
  Layout layout;        ///< layout of the training phase, which may have its own batch size
  Observers observers;  ///< observers of every step; more may be added between steps
  ShardPlan plan;
  ParameterStore parameters;
  GradientReducer reducer;
  WeightGatherer gatherer;
  /// the text for dispatch.json, if dispatch was measured; on the first rank only
  std::string dispatch_record;
  /// true during the last microbatch: gradients are final when its backward has passed them
  bool last_microbatch = false;
  /// this rank's pipeline stages; without a pipeline one, the whole model
  std::vector<std::unique_ptr<Decoder>> chunks;

 private:
  std::vector<std::unique_ptr<Stage>> wrapped_;  // wrappers of chunks; null if a chunk has none

 public:
  Pipeline pipeline;
  OptimizerSet optimizers;
  Tensor previous_share, router_bias;
  std::map<std::string, int64_t> fresh_since;  ///< see set_fresh_since

  int64_t step = 0;  ///< number of updates so far
  int64_t tokens_seen = 0;
  DataLedger ledger;  ///< records what has been drawn from each source

 private:
  TrainState(const RunConfig& run_config, DataIdentity data_identity, std::unique_ptr<OneRank> alone,
             const Mesh* shared, TrainStateOptions options);
  DecoderOptions decoder_options();
  std::vector<std::unique_ptr<Decoder>> make_chunks();
  std::vector<std::unique_ptr<Stage>> wrap(const TrainStateOptions& options);
  std::vector<Stage*> stages();
};

}  // namespace athanor
