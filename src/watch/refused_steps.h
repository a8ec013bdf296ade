#pragma once
// What a run does with a step that was not applied. If its loss or gradient is not finite, it finds out where the value
// came up and whose fault it is, and then ends, or passes over the batch. If they are far above those of the steps
// before, it passes over the batch, or only warns (train.on_spike). A level that lasts is told (train/usual_level.h).
// An update that gave weights without a finite validation loss cannot be taken back: the run ends, or continues from a
// checkpoint before it.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/run_context.h"
#include "train/spikes.h"
#include "train/step_report.h"
#include "train/train_state.h"
#include "watch/numbers_verdict.h"

namespace athanor::inline watch {

/// The run begins again from its newest checkpoint, behind the data of a bad step; the same on every rank.
struct RollBack {
  DataLedger ledger;  ///< where the data continue
  Spikes spikes;      ///< what the run knew of its losses then
};

/// What becomes of a step.
struct StepFate {
  bool is_applied = false;
  std::optional<RollBack> roll_back = {};  ///< only if it is not applied; nothing: the next batch takes its place
};

/// Returns whether a run with this configuration may go back after a step with this verdict.
inline bool may_roll_back(Verdict verdict, const TrainConfig& config) {
  return verdict == Verdict::kRefuse || (verdict == Verdict::kSpike && config.on_spike == OnSpike::kRollBack);
}

class RefusedSteps {
 public:
  /// Watches the steps of `state` from now on, unless they are launched as graphs. If the state does not know how large
  /// the losses of the run are, as after a checkpoint of an older version, learns it from the run's metrics. Both must
  /// outlive this. Collective over the state's mesh.
  RefusedSteps(TrainState& state, RunContext& at);
  ~RefusedSteps();
  RefusedSteps(const RefusedSteps&) = delete;
  RefusedSteps& operator=(const RefusedSteps&) = delete;

  /// Returns the largest loss and gradient norm with which the next step is still applied.
  StepLimits limits() const;

  /// Takes the report of a step, and decides what becomes of it. If it is not applied and the run continues with the
  /// next batch, the position of the state is after this batch. It then has the same number of updates as before, and
  /// the gradients are zero. The run goes back if the configuration asks for it and there is a checkpoint. Collective
  /// over the state's mesh.
  /// @param saved_step  of the newest checkpoint, for the message; 0: there is none.
  /// @throws NumbersError with the verdict, the same on every rank, if the run ends here.
  StepFate fate_of(const StepReport& report, const Batch& batch, int64_t saved_step);

  /// Takes a validation loss that is not finite, of the weights that the state's step gave.
  /// @param source  of the data; "" if there is one.
  /// @return where the run continues, if the configuration asks for it and there is a checkpoint of an earlier step.
  /// @throws NumbersError if not; the same on every rank. Collective over the state's mesh.
  RollBack refuse_weights(double validation_loss, const std::string& source, int64_t saved_step);

  /// Returns the seconds that this rank has spent on watching so far.
  double seconds() const { return watch_ ? watch_->seconds() : 0; }

 private:
  StepFate refuse(const StepReport& report, const Batch& batch, int64_t saved_step);
  bool may_skip() const;
  StepFate pass_over(const StepReport& report, const Batch& batch, const std::string& cause, bool roll_back,
                     int64_t saved_step);
  void tell(const SpikeFindings& found, const StepReport& report) const;
  void record(const char* event, int64_t step, nlohmann::ordered_json more) const;

  TrainState& state_;
  RunContext& at_;
  std::shared_ptr<FiniteWatch> watch_;  // null: steps are launched as graphs
};

}  // namespace athanor::inline watch
