#pragma once
// From a configuration to a state that can take its next step: fresh, resumed, or begun from a model.

#include <memory>
#include <vector>

#include "base/folder_lock.h"
#include "base/signals.h"
#include "base/thread_share.h"
#include "train/run_data.h"
#include "train/train_state.h"
#include "train/whereabouts.h"

namespace athanor {

struct StartedRun {
  std::unique_ptr<FolderLock> lock;  ///< of the first rank: nobody else trains in the folder
  int64_t attempt = 1;               ///< starts of this run so far
  std::vector<StageData> stages;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<TrainState> state;
  ThreadShare threads;        ///< of this rank
  bool from_scratch = false;  ///< freshly initialised, not resumed
};

/// A signal that came before everything was checked: the run's folder is as it was.
struct StoppedAtStart {
  int signal_number;
};

/// What is wrong with the layout on so many ranks (find_layout_faults), or names parameters that are not there, once
/// the model is known that model.from names.
/// @throws ConfigError; CheckpointError for that folder.
void refuse_misfits(RunConfig config, int world_size);

/// How the world is to be opened for a run.
comm::WorldOptions world_options(const RunConfig& config);

/// Holds the run folder, opens and verifies data, fills the state, checks everything that can be checked, and only then
/// writes into the folder (run_folder.h); from there on `whereabouts` names it. Collective; the world must outlive the
/// run. @throws StoppedAtStart on every rank, if a signal has reached one.
StartedRun start_run(RunConfig config, comm::World& world, Whereabouts& whereabouts, const SignalGuard& signals);

}  // namespace athanor
