#pragma once
// The numbers of one step.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "optim/gradient_norm.h"
#include "optim/largest_logit.h"
#include "optim/noise_scale.h"
#include "parallel/loss_sum.h"
#include "parallel/reduction_clock.h"
#include "train/step_guard.h"
#include "train/update_metrics.h"

namespace athanor::inline train {

/// They are those of the whole batch and equal on all ranks, except for times and `reduction`, which are this rank's.
struct StepReport {
  int64_t step = 0;                ///< number of this update in the run, from 1
  LossNumbers parts;               ///< sums over the batch
  double grad_norm = 0;            ///< before clipping
  RankNorms rank_norms;            ///< parts of the norm, by data rank and by expert rank; empty for one rank
  std::vector<PartSquares> noise;  ///< by group of parameters; empty except in steps of metrics.noise_scale_interval
  double lr = 0;
  int64_t changed = 0;  ///< number of weights of the model, as forward reads them, that the update changed
  /// by parameter of the model: what rounding did to the update; empty except in steps of
  /// metrics.update_watch_interval
  std::vector<ParameterUpdate> updates;
  std::map<std::string, int64_t> optimizer_counts;  ///< by name: OptimizerSet::count_names
  std::optional<LargestLogit> largest_logit;        ///< if the step was applied, with optimizer.qk_clip
  Verdict verdict = Verdict::kApply;
  double forward_s = 0, backward_s = 0, optimizer_s = 0;
  /// the parts of these times that were waits for other ranks
  double forward_wait_s = 0, backward_wait_s = 0, optimizer_wait_s = 0;
  /// On a device, with TrainState::compute_clock: how long it has computed, without waits for other ranks. Nothing if
  /// its library compares no times.
  std::optional<double> device_s;
  ReductionTrace reduction;
};

}  // namespace athanor::inline train
