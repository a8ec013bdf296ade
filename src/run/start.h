#pragma once
// Starts a run: makes from a configuration a state that can take its next step. Its weights are random, those of
// another model, or those of a checkpoint.

#include <memory>
#include <optional>
#include <vector>

#include "base/folder_lock.h"
#include "base/signals.h"
#include "base/thread_share.h"
#include "run/run_data.h"
#include "run/run_evaluation.h"
#include "saves/local_save.h"
#include "train/run_context.h"
#include "train/train_state.h"

namespace athanor::inline run {

struct StartedRun {
  std::unique_ptr<FolderLock> lock;  ///< no other process may train in the folder; null except on the first rank
  int64_t attempt = 1;               ///< number of this start of the run: 1 for the first
  RunData data;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<TrainState> state;
  ThreadShare threads;     ///< threads of this rank
  int64_t saved_step = 0;  ///< the newest step that the run's folder has, or 0; the state's unless that was a local one
  std::vector<LocalStore> old_local;  ///< local checkpoints to be removed here: in another place, or of other nodes
  std::optional<LocalPlace> local;    ///< where local checkpoints are written; none without checkpoint.local_interval
  /// step 0 with random weights: neither a checkpoint nor the folder in model.from gave any
  bool from_scratch = false;
};

/// Thrown if a signal (SIGTERM or SIGINT) came before every check had passed: the run's folder is unchanged.
struct StoppedAtStart {
  int signal_number;
};

/// Refuses a layout that does not fit the number of ranks (find_layout_faults), or an optimizer.no_weight_decay that
/// names parameters that the model does not have. The model is the one that model.from names, if it names one. Sends
/// nothing, so that it can be called before the world is open.
/// @throws ConfigError with all of these faults; CheckpointError if the folder in model.from is no model.
void require_layout_fits(RunConfig config, int world_size);

/// Returns the options with which a run opens the world.
comm::WorldOptions world_options(const RunConfig& config);

/// Starts the run: locks the run folder, opens the data, fills the state, makes every check that can be
/// made, and only then writes into the folder (run_folder.h). From this moment on `context` has the run's folder and
/// the attempt. Collective over `world`, which must outlive the run.
/// @throws ConfigError, DataError, CheckpointError or IoError if a check fails, with the folder unchanged; IoError if
/// the folder cannot be written. Every rank throws the same error, except for what only some ranks see: too little
/// memory on their host, a router of theirs that is all zero, a file of a `transformers` folder that they cannot read.
/// @param evaluation  is prepared, if eval.interval is not 0; else it may be null.
/// @param data_from  where the data continue, if not where the checkpoint has it: behind a batch that was passed over.
/// @throws StoppedAtStart on every rank, if a signal has reached one.
StartedRun start_run(RunConfig config, comm::World& world, RunContext& context, const SignalGuard& signals,
                     RunEvaluation* evaluation = nullptr, const DataLedger* data_from = nullptr);

}  // namespace athanor::inline run
