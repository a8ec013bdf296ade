#pragma once
// Starts a run: from a configuration to a state that can take its next step, fresh, resumed, or begun from a model.

#include <memory>
#include <vector>

#include "base/folder_lock.h"
#include "base/signals.h"
#include "base/thread_share.h"
#include "train/run_context.h"
#include "train/run_data.h"
#include "train/train_state.h"

namespace athanor {

struct StartedRun {
  std::unique_ptr<FolderLock> lock;  ///< held by the first rank: no other process may train in the folder
  int64_t attempt = 1;               ///< number of starts of this run so far
  std::vector<StageData> stages;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<TrainState> state;
  ThreadShare threads;        ///< threads of this rank
  bool from_scratch = false;  ///< freshly initialised, not resumed
};

/// Thrown if a signal came before every check had passed: the run's folder is unchanged.
struct StoppedAtStart {
  int signal_number;
};

/// Refuses a layout that does not fit the number of ranks (find_layout_faults), or parameter names that the model does
/// not have, once the model that model.from names is known.
/// @throws ConfigError; CheckpointError for the folder of model.from.
void require_layout_fits(RunConfig config, int world_size);

/// Returns the options with which a run opens the world.
comm::WorldOptions world_options(const RunConfig& config);

/// Starts the run: locks the run folder, opens and verifies the data, fills the state, makes every check that can be
/// made, and only then writes into the folder (run_folder.h); from there on `context` names the folder. Collective;
/// the world must outlive the run.
/// @throws StoppedAtStart on every rank, if a signal has reached one.
StartedRun start_run(RunConfig config, comm::World& world, RunContext& context, const SignalGuard& signals);

}  // namespace athanor
