#pragma once
// The batches of a run: those of its training phases one after the other, read ahead, and sent ahead to a device.

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/span_log.h"
#include "dataset/loader.h"
#include "run/run_data.h"
#include "train/train_state.h"

namespace athanor::inline run {

/// Thrown on all ranks instead of a batch that would take more from a source than its max_epochs allow. The plan before
/// step 1 stayed within that limit, but batches that were passed over since then count as well.
struct SourceUsedUp {
  std::string text;
};

class StageBatches {
 public:
  /// @param state  has the step at which the run is, and its place in each source. It must live as long as this.
  StageBatches(TrainState& state, const Mesh& mesh, std::vector<StageData> stages);

  /// Whether the next step is the first of the run, or of another training phase than the one before it.
  bool must_enter() const;
  /// Enters the training phase of the next step and opens its data at the position of each source. Collective over the
  /// world (agree_on_reading). @throws UnreadableData on all ranks.
  void enter();

  /// Returns the batch of the next step; waits until it is read. @throws what reading it threw, or SourceUsedUp.
  Batch take();
  /// The batch of the step after the one that is computed, if it has been read; null at the end of a training phase.
  const Batch* ahead();
  /// Waits for the batch of the next step, if this training phase has one more. @return what reading it threw, or null.
  std::exception_ptr failure_of_next();
  /// Seconds that failure_of_next() has waited since this was last called.
  double take_waited_s();

  /// Makes the threads that read ahead log their reads; null: no more.
  void record_spans(std::shared_ptr<SpanLog> spans);

  const StageData& data() const { return *data_; }  ///< those of the present training phase
  size_t num_stages() const { return stages_.size(); }
  /// Returns the tokens of the run's steps that have not been taken.
  int64_t tokens_left() const;
  /// Returns the supply of these steps.
  Supply supply() const { return plan_supply(stages_, state_.run_config, state_.position); }

 private:
  bool is_at_end() const;
  bool begins_other_data() const;

  TrainState& state_;
  const Mesh& mesh_;
  std::vector<StageData> stages_;
  const StageData* data_ = nullptr;
  std::optional<Loader> loader_;
  std::optional<Batch> next_;  // the batch of the next step, if it was sent ahead
  double waited_s_ = 0;
  std::shared_ptr<SpanLog> spans_;
};

}  // namespace athanor::inline run
