#pragma once
// The held-out losses of a run: of each source of the present training phase, and their mean by the shares of the mix.

#include <optional>
#include <string>
#include <vector>

#include "metrics/metrics.h"
#include "run/run_data.h"
#include "train/train_state.h"

namespace athanor::inline run {

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

}  // namespace athanor::inline run
