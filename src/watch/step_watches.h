#pragma once
// All that a run watches its steps with: values that are not finite, spikes, memory that changes, slow ranks, experts
// and parameters that do not learn, and updates that rounding spoils. Each has a header where it is described.

#include "train/run_context.h"
#include "train/step_report.h"
#include "train/train_state.h"
#include "watch/expert_watch.h"
#include "watch/frozen_parameters.h"
#include "watch/integrity.h"
#include "watch/refused_steps.h"
#include "watch/slow_ranks.h"
#include "watch/stuck_numbers.h"
#include "watch/update_watch.h"

namespace athanor::inline watch {

class StepWatches {
 public:
  /// Watches the steps of `state` from now on. Both must outlive this. Collective over the state's mesh.
  /// @param shares_cores  the ranks of this host slow down one another (share_cores): without a device, this rank is
  ///                      neither named as slow nor compared.
  StepWatches(TrainState& state, RunContext& at, bool shares_cores);

  /// To be called before each step. Collective. @throws as Integrity.
  void begin_step();
  /// To be called when the gradients of the step are there, before the update. Collective. @throws as Integrity.
  void before_update() { integrity_.before_update(); }
  /// Returns what the step may have and be applied.
  StepLimits limits() const { return refused_.limits(); }
  /// To be called after each step. Returns what becomes of it, as RefusedSteps::fate_of. Warnings go to the log and to
  /// events.jsonl. Collective. @throws as RefusedSteps.
  StepFate fate_of(const StepReport& report, const Batch& batch, int64_t saved_step);

  /// See RefusedSteps.
  RollBack refuse_weights(double validation_loss, const std::string& source, int64_t saved_step) {
    return refused_.refuse_weights(validation_loss, source, saved_step);
  }

  /// Warns at the end of a complete run whose numbers mean nothing any more. Sends nothing.
  void tell_at_end() const;

  /// Returns the seconds that this rank has spent on watching since the last call.
  double take_seconds();

 private:
  void note_slow_ranks(const StepReport& report);
  void note_what_does_not_learn(const StepReport& report);

  TrainState& state_;
  RunContext& at_;
  bool shares_cores_;
  RefusedSteps refused_;
  Integrity integrity_;
  SlowRanks slow_ranks_;
  ExpertWatch experts_;
  FrozenParameters frozen_;
  UpdateWatch updates_;
  StuckNumbers stuck_;
  double seconds_told_ = 0;
};

}  // namespace athanor::inline watch
