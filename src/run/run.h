#pragma once
// A training run, from its configuration to its last checkpoint.

#include "comm/world.h"
#include "config/run_config.h"
#include "run/run_evaluation.h"
#include "train/run_context.h"

namespace athanor::inline run {

/// Trains from where the run stands (saves/resume_point.h) until train.steps, or until SIGTERM or SIGINT reaches any
/// rank: then all ranks finish the step in progress, save and stop. Collective over the world.
/// @param context  is kept up to date, so that the message of a failure can name the step and the folder.
/// @param evaluation  evaluates the model, as [eval] asks for it; may be null if eval.interval is 0.
/// @return on every rank, an exit code (docs/exit-codes.md):
///   0           The run is complete.
///   143 or 130  SIGTERM or SIGINT stopped the run. The steps of this attempt are saved, or it had not taken one.
///   11          The run is complete, but its last checkpoint or model could not be written; or a signal stopped it
///               after a step of this attempt that is not saved: it could not be written, or the configuration saves
///               nothing.
///   77          A rule of eval.stop_if stopped the run, which has saved, if it saves anything.
///   74          Another rank could not read its data and throws; what could be saved is saved.
/// @throws ConfigError, DataError, CheckpointError, IoError from the checks of the start (start.h); ConfigError after
/// the first step of the attempt, if a router's scores are all equal (router_metrics.h); NumbersError if an update had
/// to be refused; Error with exit code 74 on the first rank that could not read its data; IoError if another process
/// has taken the folder's lock; CommError.
int run_training(RunConfig config, comm::World& world, RunContext& context, RunEvaluation* evaluation = nullptr);

}  // namespace athanor::inline run
