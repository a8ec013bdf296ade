#pragma once
// Everything a run is: named fp32 tensors and a few numbers. What is not here cannot change the next step.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "config/training_stages.h"
#include "data/mixture.h"
#include "model/decoder.h"
#include "optim/adamw.h"
#include "parallel/gradient_reducer.h"
#include "parallel/observer.h"
#include "parallel/pipeline.h"
#include "parallel/weight_gatherer.h"

namespace athanor {

/// What a model learns to read: checkpoints carry it, so that a run is not continued with other tokens.
struct DataIdentity {
  std::string tokenizer_hash;
  uint32_t eos_id = 0;
};

/// Of a bucket: parallelism.bucket_mb is in units of 10^6 bytes of fp32.
int64_t bucket_elements(const RunConfig& config);

/// What a run is built with that its configuration does not know of. `train` leaves it empty.
struct TrainStateOptions {
  Observers observers = {};
  /// Puts something around a stage of this rank, which outlives it; may answer null. Called for each stage once.
  std::function<std::unique_ptr<Stage>(Stage& stage, const StageLayers& layers, const Mesh& mesh)> wrap_stage = {};
};

/// As one rank holds it.
struct TrainState {
  /// Allocates parameters, gradients and moments, all zero; initialise or load before the first step.
  /// @param mesh  of the ranks that train; must outlive the state.
  TrainState(const RunConfig& run_config, DataIdentity data_identity, const Mesh& mesh, TrainStateOptions options = {});
  /// A process that trains alone, whoever started it.
  TrainState(const RunConfig& run_config, DataIdentity data_identity, TrainStateOptions options = {});

  /// The stage that the next step is in: its batch, microbatches and schedule.
  void enter(const TrainingStage& next_stage);

  /// Of the previous step, [sparse layers, experts] (Decoder); undefined for dense models.
  void set_previous_share(Tensor share);
  /// For each parameter of the model whose moments have not been kept since step 0, on whichever rank: the step after
  /// which they were zero. Its updates are the steps since.
  void set_fresh_since(std::map<std::string, int64_t> step_of_parameter);
  /// Undefined: none. Changing it in place changes the routers.
  void set_router_bias(Tensor bias);

  RunConfig config;
  TrainingStage stage;
  DataIdentity data;

 private:
  std::unique_ptr<OneRank> alone_;

 public:
  const Mesh& mesh;
  Layout layout;        ///< of the stage, whose batch size may be its own
  Observers observers;  ///< of every step; more may be added between steps
  ShardPlan plan;
  ParameterStore parameters;
  GradientReducer reducer;
  WeightGatherer gatherer;
  std::string dispatch_record;                   ///< what dispatch.json is to hold, where it was measured; first rank's
  bool last_microbatch = false;                  ///< gradients are final when its backward has passed them
  std::vector<std::unique_ptr<Decoder>> chunks;  ///< this rank's pipeline stages; one, the whole model, without

 private:
  std::vector<std::unique_ptr<Stage>> wrapped_;  // around chunks, null where nothing is

 public:
  Pipeline pipeline;
  AdamW optimizer;
  Tensor previous_share, router_bias;
  std::map<std::string, int64_t> fresh_since;  ///< set_fresh_since

  int64_t step = 0;  ///< updates so far
  int64_t tokens_seen = 0;
  DataLedger ledger;  ///< what has been drawn from each source

 private:
  TrainState(const RunConfig& run_config, DataIdentity data_identity, std::unique_ptr<OneRank> alone,
             const Mesh* shared, TrainStateOptions options);
  DecoderOptions decoder_options();
  std::vector<std::unique_ptr<Decoder>> make_chunks();
  std::vector<std::unique_ptr<Stage>> wrap(const TrainStateOptions& options);
  std::vector<Stage*> stages();
};

}  // namespace athanor
