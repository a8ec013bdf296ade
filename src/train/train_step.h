#pragma once
// One optimizer step.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataset/loader.h"
#include "optim/gradient_norm.h"
#include "optim/largest_logit.h"
#include "optim/noise_probe.h"
#include "train/metrics.h"
#include "train/step_guard.h"
#include "train/train_state.h"
#include "train/update_metrics.h"

namespace athanor {

/// The numbers of one step. They are those of the whole batch and equal on all ranks, except for times and `reduction`,
/// which are this rank's.
struct StepReport {
  int64_t step = 0;      ///< number of this update in the run, from 1
  LossParts parts;       ///< sums over the batch
  double grad_norm = 0;  ///< before clipping
  /// On a device: the norms, there. apply_update fetches them and the sums of `parts`; until then the host does not
  /// have them. Undefined on the host.
  GradientNormsOnDevice norms_on_device;
  RankNorms rank_norms;            ///< parts of the norm, by data rank and by expert rank; empty for one rank
  std::vector<PartSquares> noise;  ///< by group of parameters; empty except in steps of metrics.noise_scale_interval
  Tensor noise_on_device;          ///< on a device: what it is made of (part_squares), until apply_update fetches it
  // apply_update sets lr, changed, updates, largest_logit, verdict and the times of the optimizer.
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

/// Runs forward and backward of every microbatch of this rank (before that a second backward, if an optimizer asks for
/// one), then sums losses, gradients and their norm over the ranks. Collective over the state's world.
/// @param batch  the batch of the update after state.position.step; it must hold this rank's sequences (sequences_of).
StepReport compute_gradients(TrainState& state, const Batch& batch);

/// Runs forward and backward of every microbatch; the gradients of the last one are summed while it goes back.
/// Collective over the state's world.
/// @param microbatches  as many as the schedule has, on the model's device.
/// @param after  called after each action of the schedule; null: not.
/// @return the parts of this rank's stages.
LossParts run_microbatches(TrainState& state, std::span<const Microbatch> microbatches,
                           const std::function<void(const Action&)>& after = {});

/// Looks at the weights around an update. Each function is called on the thread that trains.
class UpdateObserver {
 public:
  virtual ~UpdateObserver() = default;
  /// Called before and after the update of a range of flat memory: at most kUpdateBlock elements, in order. Between the
  /// two calls the optimizer updates this range and nothing else.
  virtual void before_update(FlatRange range) = 0;
  virtual void after_update(FlatRange range) = 0;
  /// On a device: returns numbers (fp64, one dim) that the host fetches with those of the step; undefined: none.
  virtual Tensor numbers_on_device() { return {}; }
  /// Gets them.
  virtual void take_numbers(const Tensor& /*on_host*/) {}
};
constexpr int64_t kUpdateBlock = int64_t{1} << 22;  // 16 MiB of fp32

/// Makes the update from what compute_gradients reported, and sets the position of the run to after it. If the guard
/// refuses the update (report.verdict), nothing changes. Collective over the state's world.
/// @param observer  null: none. It changes no bits.
void apply_update(TrainState& state, const Batch& batch, StepReport& report, UpdateObserver* observer = nullptr);

/// Calls both. On return the weights of the next step may still be on their way: the decoder waits for them, and so
/// does state.model.gatherer.wait_all().
StepReport train_step(TrainState& state, const Batch& batch);

}  // namespace athanor
