#pragma once
// Splits a run into its training phases, each with a complete configuration.

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// A training phase. The configuration key and the code have the older name, stage.
struct TrainingStage {
  std::string name;   ///< "stage 2" for one without a name; "" if the run is one phase
  int64_t begin = 0;  ///< optimizer steps of the phases before this one
  /// The run's configuration with the phase's fields applied: train.steps counts this phase only, data.sources is its
  /// mix (never empty; data.path becomes one source without a cap on epochs), and train.stages is empty.
  RunConfig config;

  int64_t end() const { return begin + config.train.steps; }
};

/// Returns the training phases of a run, at least one. The last ends at train.steps or after it, as the checks of the
/// configuration require (checks.h).
std::vector<TrainingStage> training_stages(const RunConfig& config);

}  // namespace athanor
