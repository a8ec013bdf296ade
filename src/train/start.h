#pragma once
// From a configuration to a state that can take its next step: fresh, resumed, or begun from a model.

#include <memory>
#include <vector>

#include "train/run_data.h"
#include "train/train_state.h"

namespace athanor {

struct StartedRun {
  std::vector<StageData> stages;
  std::unique_ptr<TrainState> state;
  bool from_scratch = false;  ///< freshly initialised, not resumed
};

/// Opens and verifies data, checks everything that can be checked, opens the run folder and fills the state.
StartedRun start_run(RunConfig config);

}  // namespace athanor
