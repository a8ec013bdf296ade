#pragma once
// A model on the ranks of a mesh: parameters, pipeline stages, and what carries tokens and weights between ranks. It is
// all that validation, scoring and generation need, on any layout; training adds gradients and an optimizer
// (train/train_state.h).

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "parallel/observer.h"
#include "parallel/pipeline.h"
#include "parallel/weight_gatherer.h"

namespace athanor {

/// Parts that a model is built with and that its configuration does not know of.
struct ModelStateOptions {
  ParameterStore::Use use = ParameterStore::Use::kTraining;
  const Observers* observers = nullptr;  ///< see training; must outlive the model; null: none
  /// Wraps a pipeline stage of this rank. The stage outlives the wrapper. May return null: no wrapper. Called once for
  /// each stage.
  std::function<std::unique_ptr<Stage>(Stage& stage, const StageLayers& layers, const Mesh& mesh)> wrap_stage = {};
  /// See StageHooks; null: nothing waits for gradients.
  std::function<void(int64_t forward_index)> after_backward = {};
  std::filesystem::path dispatch_file = {};  ///< where the choice of a measured dispatch is kept
};

/// The part of a model that one rank holds.
class ModelState {
 public:
  /// Allocates parameters, and gradients if they are trained, all zero. Collective if moe.dispatch is measured.
  /// @param ranks  must outlive the model.
  ModelState(const RunConfig& config, Mesh& ranks, const ModelStateOptions& options);
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  /// Enters a training phase: the layout and the schedule are those of `config`, which may differ from the first one's
  /// in its batch.
  void enter(const RunConfig& config);

  /// Sets each expert's share of the choices in the previous step, [sparse layers, experts] (Decoder); undefined for
  /// dense models.
  void set_previous_share(Tensor share);
  /// Sets the router bias; undefined if there is none. A later change of the tensor in place changes the routers.
  void set_router_bias(Tensor bias);

  Mesh& mesh;
  ShardPlan plan;
  ParameterStore parameters;
  WeightGatherer gatherer;
  /// the text for dispatch.json, if dispatch was measured; on the first rank only
  std::string dispatch_record;
  /// this rank's pipeline stages; without a pipeline one, the whole model
  std::vector<std::unique_ptr<Decoder>> chunks;

 private:
  std::vector<std::unique_ptr<Stage>> wrapped_;  // wrappers of chunks; null if a chunk has none

 public:
  Pipeline pipeline;
  Tensor previous_share, router_bias;

 private:
  DecoderOptions decoder_options(const RunConfig& config, const ModelStateOptions& options);
  std::vector<std::unique_ptr<Decoder>> make_chunks(const RunConfig& config, const ModelStateOptions& options);
  std::vector<std::unique_ptr<Stage>> wrap(const RunConfig& config, const ModelStateOptions& options);
  std::vector<Stage*> stages() const;
};

}  // namespace athanor
