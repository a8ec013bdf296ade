#pragma once
// A run as its stages, each a configuration in which every field holds.

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

struct TrainingStage {
  std::string name;
  int64_t begin = 0;  ///< updates before it
  /// The run's with the stage's fields in place: train.steps is the stage's own, data.sources its mix (never empty;
  /// data.path is one source without a cap), train.stages empty.
  RunConfig config;

  int64_t end() const { return begin + config.train.steps; }
};

/// @return at least one stage. The last ends at train.steps or after it.
std::vector<TrainingStage> training_stages(const RunConfig& config);

}  // namespace athanor
