#pragma once
// Short runs that leave nothing behind: the training step of a run, its data and its layout, without its folder.
// Several of them begin with the same weights and see the same batches.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread_share.h"
#include "run/run_data.h"
#include "run/stage_batches.h"
#include "train/train_state.h"

namespace athanor::inline tuning {

/// Returns the configuration of a short run: the first training phase of `config` with this many steps of
/// train.global_batch_size, without train.batch_ramp. Checkpoints, validation, evaluations and rehearsals are off. The
/// schedule, its warm-up and its final decay are the same multiples of the phase's length as before, in steps or in
/// tokens, each rounded down. Tokens are dispatched to experts by all_to_all unless a kind is named: a measured one
/// might differ from call to call.
RunConfig short_run_config(const RunConfig& config, int64_t steps);

/// What short runs on the ranks of a job share.
class ShortRuns {
 public:
  /// Makes every check of the start of a run, for each configuration: settings, layout, data, memory. Settles the
  /// device, the number of threads, and how matrices are multiplied: as ATHANOR_MATMUL asks, else by the default of the
  /// first rank's CPU, which the same command finds again. Writes nothing. Collective over `world`, which must outlive
  /// this.
  /// @param configs  those of short_run_config; their sequence lengths and types are filled in.
  /// @throws ConfigError, DataError or CheckpointError: the same on all ranks, except for memory.
  ShortRuns(std::vector<RunConfig> configs, comm::World& world);

  const std::vector<RunConfig>& configs() const { return configs_; }
  comm::World& world() const { return world_; }
  at::Device device() const { return device_; }
  const RunData& data() const { return data_; }

 private:
  void settle_threads();
  void open_data();

  std::vector<RunConfig> configs_;
  comm::World& world_;
  Mesh mesh_;
  at::Device device_;
  RunData data_;
};

/// A run from step 0, with the weights that train.seed or model.from gives.
class ShortRun {
 public:
  /// Collective over the world of `runs`, which must outlive this.
  /// @param config  one of runs.configs(), perhaps with other rates.
  ShortRun(const RunConfig& config, const ShortRuns& runs);

  /// Sets the rate of the steps from now on; the schedule of the configuration must be constant, without warm-up.
  void set_rate(double lr) { state_.config.optimizer.lr = lr; }
  /// Takes a step. Collective. @throws UnreadableData on all ranks.
  /// @return the mean loss of the batch before the update; NaN if it or a gradient is not finite, and no step was
  /// taken. Equal on all ranks.
  double step();

 private:
  Mesh mesh_;
  TrainState state_;
  StageBatches batches_;
};

}  // namespace athanor::inline tuning
