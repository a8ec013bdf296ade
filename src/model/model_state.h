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

namespace athanor::inline model {

/// What a model is built with in addition to its configuration.
struct ModelStateOptions {
  ParameterStore::Use use = ParameterStore::Use::kTraining;
  at::Device device = at::kCPU;          ///< where parameters are, and everything is computed
  const Observers* observers = nullptr;  ///< see training; must outlive the model; null: none
  /// Wraps a pipeline stage of this rank: the pipeline calls the wrapper in its place. May return null: no wrapper. It
  /// is called once for each stage; the stage outlives the wrapper. Null: no stage is wrapped.
  std::function<std::unique_ptr<Stage>(Stage& stage, const StageLayers& layers, const Mesh& mesh)> wrap_stage = {};
  /// A dispatch.json from which moe.dispatch = "auto" takes an earlier choice for the same shapes. It is only read.
  std::filesystem::path dispatch_file = {};
};

/// The part of a model that one rank holds.
class ModelState {
 public:
  /// Allocates parameters, and gradients if they are trained, all zero. Collective over the world if moe.dispatch is
  /// "auto" and several ranks share the experts.
  /// @param ranks  must outlive the model.
  /// @throws ConfigError if the configuration does not fit the mesh.
  ModelState(const RunConfig& config, Mesh& ranks, const ModelStateOptions& options);
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  /// Enters a training phase: the mesh's layout and the pipeline's schedule become those of `config`, which may differ
  /// from the constructor's in its batch.
  void enter(const RunConfig& config);

  /// Set the values for all sparse layers of the model, [sparse layers, experts] fp32, as Decoder's functions of these
  /// names do. Not for dense models. Tensors of the host are sent to the model's device.
  void set_previous_share(const Tensor& share);
  void set_router_bias(const Tensor& bias);

  /// Where the parameters are, and everything is computed.
  at::Device device() const { return parameters.compute().device(); }

  Mesh& mesh;
  ShardPlan plan;
  ParameterStore parameters;
  WeightGatherer gatherer;
  /// the text for dispatch.json, on the first rank if dispatch was measured; otherwise empty
  std::string dispatch_record;
  /// this rank's pipeline stages, in the order of forward; without a pipeline one, the whole model
  std::vector<std::unique_ptr<Decoder>> chunks;

 private:
  std::vector<std::unique_ptr<Stage>> wrapped_;  // wrappers of chunks; null if a chunk has none

 public:
  Pipeline pipeline;
  /// what the last calls of set_previous_share and set_router_bias have set; undefined if there is none
  Tensor previous_share, router_bias;

 private:
  DecoderOptions decoder_options(const RunConfig& config, const ModelStateOptions& options);
  std::vector<std::unique_ptr<Decoder>> make_chunks(const RunConfig& config, const ModelStateOptions& options);
  std::vector<std::unique_ptr<Stage>> wrap(const RunConfig& config, const ModelStateOptions& options);
  std::vector<Stage*> stages() const;
};

}  // namespace athanor::inline model
