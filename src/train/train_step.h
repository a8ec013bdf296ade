#pragma once
// One optimizer step, in its parts.

#include <memory>
#include <optional>
#include <vector>

#include "dataset/loader.h"
#include "ops/label_draw.h"
#include "optim/gradient_norm.h"
#include "optim/schedule.h"
#include "parallel/loss_sum.h"
#include "train/step_report.h"
#include "train/stopwatches.h"
#include "train/train_state.h"
#include "train/update_observer.h"

namespace athanor::inline train {

class UpdateSums;

/// The update after state.position.step. Its parts are called in the order in which they stand here, as train_step
/// does; callers that look or act between two parts call them one by one. Each is collective over the state's world,
/// except send_ahead. On a device the host queues the work of all parts, and waits only in finish().
class Step {
 public:
  /// @param batch  must hold this rank's sequences (sequences_of). Both must outlive the step.
  Step(TrainState& state, const Batch& batch);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// If an optimizer learns from a second backward in this step: computes the gradients of the loss on the labels that
  /// it asks for, at the weights of this step, and sums them. Losses, counts and observers see nothing of it.
  /// @param record  takes the labels that are drawn, or gives them (ops/label_draw.h); null: neither.
  /// @return whether there was one. Then the optimizer learns from it in learn_from_second().
  bool second_backward(std::shared_ptr<const ops::DrawnLabels> record = nullptr);
  void learn_from_second();

  /// Runs forward and backward of every microbatch of this rank, and sums losses, gradients and their norm over the
  /// ranks.
  void compute_gradients();

  /// Judges the step (train/step_guard.h), and makes the update unless it is refused: then nothing changes.
  /// @param observer  null: none. It changes no bits, and must outlive the step.
  void update(const StepLimits& limits = {}, UpdateObserver* observer = nullptr);

  /// Whether the device computes this step while the host may send what the next one reads.
  bool may_send_ahead() const;
  /// Sends the tokens of the next step to the device.
  void send_ahead(const Batch& next);

  /// Returns the numbers of the step, and sets the position of the run to after it if it was applied. Without an update
  /// they are those of the gradients. On return the weights of the next step may still be on their way: the decoder
  /// waits for them, and so does state.model.gatherer.wait_all().
  StepReport finish();

 private:
  int64_t num_tokens() const { return batch_.num_sequences * batch_.seq_len; }
  std::vector<Microbatch> microbatches_of(const Batch& batch, int64_t step) const;
  void take_microbatches();
  std::optional<Update> judged_update(const SchedulePoint& now);
  Update queued_update(const SchedulePoint& now) const;
  void fetch_numbers();
  void judge();
  void advance();

  // The numbers of the step, where the model is until they are fetched; undefined: the step has none, or not yet.
  struct Numbers {
    LossTotals losses;
    GradientSquares squares;
    Tensor noise;    // what StepReport::noise is made of (part_squares)
    Tensor changed;  // see take_counts
    Tensor logits;   // what QK-clip found

    std::vector<Tensor*> tensors();
  };

  TrainState& state_;
  const Batch& batch_;
  const bool is_queued_;  // the host only queues what a device computes, and gets numbers when it waits for them
  StepStopwatch watch_;
  StepReport report_;
  std::vector<Microbatch> microbatches_;
  Numbers numbers_;
  bool was_updated_ = false;
  StepLimits limits_;
  UpdateObserver* observer_ = nullptr;
  std::unique_ptr<UpdateSums> sums_;  // in the steps of metrics.update_watch_interval
};

/// Takes a step from its beginning to its end.
StepReport train_step(TrainState& state, const Batch& batch, const StepLimits& limits = {});

}  // namespace athanor::inline train
