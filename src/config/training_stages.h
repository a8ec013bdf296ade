#pragma once
// Splits a run into its training phases, each with a complete configuration.

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline config {

/// A training phase, or the part of a run that has one size of a batch ramp. The configuration key and the code have
/// the older name, stage.
struct TrainingStage {
  /// "stage 2" for a phase without a name, "batch of 64" for a part of a ramp; "" if the run has one size and phase.
  std::string name;
  int64_t begin = 0;  ///< optimizer steps of the run before this phase or part
  /// The run's configuration with the phase's fields applied: train.steps counts this phase only, data.sources is its
  /// mix (never empty; data.path becomes one source without a cap on epochs), and train.stages is empty. A part of a
  /// ramp has such a configuration, too: its train.batch_ramp is empty, and its lr and min_lr have the factor of
  /// train.batch_ramp_lr. Its optimizer.schedule_steps are those of the whole run unless the schedule counts tokens.
  RunConfig config;
  /// Optimizer steps of the run before its schedule of the learning rate: `begin`, or 0 for a part of a ramp.
  int64_t schedule_begin = 0;
  bool is_of_ramp = false;
  std::string batch_key = "train.global_batch_size";  ///< what sets its batch: train.batch_ramp[0].sequences in a ramp

  int64_t end() const { return begin + config.train.steps; }
  /// Returns the tokens of those of its steps that come after step `from` of the run and not after step `to`.
  int64_t tokens_between(int64_t from, int64_t to) const;
};

/// Returns the training phases of a run, at least one, or the parts of its batch ramp, one for each size. The last ends
/// at train.steps or after it, as the checks of the configuration require (checks.h). A ramp counts tokens, so without
/// data.seq_len it has no parts, which the checks refuse.
std::vector<TrainingStage> training_stages(const RunConfig& config);

/// Returns the optimizer steps of the learning rate's schedule in a phase or part, whose configuration this is.
int64_t count_schedule_steps(const RunConfig& stage);

}  // namespace athanor::inline config
