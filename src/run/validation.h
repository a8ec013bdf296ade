#pragma once
// The loss on held-out instances: how it is computed, what a run logs of it, and how often.

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "dataset/dataset.h"
#include "metrics/metrics.h"
#include "model/model_state.h"
#include "run/run_data.h"
#include "train/train_state.h"

namespace athanor::inline run {

/// Returns, on every rank, the mean cross entropy per target, in nats, over the first `num_sequences` instances of the
/// split, or over all if it has fewer. The training state stays untouched: no gradients, no counts. Collective over the
/// model's mesh: data ranks share the microbatches, and each scores the same number of them.
/// @param eos_id  ends a document; used if data.attention_scope is "document".
/// @throws UnreadableData on all ranks if one cannot read.
double validation_loss(ModelState& model, const Dataset& validation, int64_t num_sequences, const RunConfig& config,
                       uint32_t eos_id);

/// Returns, on every rank, the unigram entropy of the split's targets, in nats (dataset/dataset.h). Collective over the
/// mesh: each rank reads an equal part of the split.
/// @param worked  is told the bytes read, while the others wait.
/// @throws UnreadableData on all ranks if one cannot read.
double unigram_entropy(const Dataset& dataset, const Mesh& mesh, const Worked& worked = {});

/// The held-out losses of a run: of each source of the present training phase, and their mean by the shares of the mix.
class RunValidation {
 public:
  struct NotFinite {
    double loss;
    std::string source;  ///< "" if the phase has only one
  };

  RunValidation(TrainState& state, const Mesh& mesh) : state_(state), mesh_(mesh) {}
  /// To be called when a training phase begins: it has other sources.
  void enter_stage() { unigram_entropies_.clear(); }
  /// Computes the losses, logs them, and sets those of `metrics`. Collective over the mesh. @return the first loss that
  /// is not finite; then nothing of `metrics` but earlier sources is set. @throws UnreadableData on all ranks.
  std::optional<NotFinite> validate(const StageData& data, StepMetrics& metrics);

 private:
  TrainState& state_;
  const Mesh& mesh_;
  std::vector<double> unigram_entropies_;  // by source, as far as they were needed
};

/// How often a run validates if no user set it.
inline constexpr int64_t kDefaultValidationInterval = 250;

/// Makes a number of train.validation_interval = "auto", in `config` and in all phases: the number of the attempt from
/// which this one continues; in a new run kDefaultValidationInterval if the data of any phase have validation
/// instances, else 0. Warns of phases and sources that have none. Collective over `team`.
/// @throws ConfigError if a number was set, and no phase has validation instances.
void settle_validation_interval(RunConfig& config, std::vector<StageData>& stages, const Team& team);

}  // namespace athanor::inline run
