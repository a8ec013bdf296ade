#pragma once
// Runs a schedule over the ranks of a pipeline: microbatches through stages, and messages between.

#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "arch/schedule.h"
#include "comm/communicator.h"
#include "parallel/observer.h"
#include "parallel/stage.h"

namespace athanor {

struct PipelineHooks {
  /// Before a chunk's backward that is its last of this step: its gradients become final on the way.
  std::function<void(int chunk)> before_last_backward;
  /// After each action, on which the time since the last one was spent.
  std::function<void(const Action&)> after;
};

class Pipeline {
 public:
  /// @param chunks  this rank's stages, in order; they outlive this. @param ranks  GroupKind::kPipeline.
  /// @param observers  of what is sent in training; null: none.
  Pipeline(std::vector<Stage*> chunks, comm::Communicator& ranks, const Observers* observers = nullptr);

  /// Of the steps to come. Checked here (arch/schedule.h); null before.
  void set_schedule(Schedule schedule);

  /// Forward and backward of all microbatches (as many as the schedule has). Sends and receives go on while other
  /// microbatches are computed. Collective over the pipeline.
  /// @return the parts of this rank's stages, summed.
  LossParts forward_backward(std::span<const Microbatch> microbatches, const PipelineHooks& hooks = {});

  /// Scores one microbatch after the other; they may differ in size (Stage::expect is called for each, and again for
  /// those of forward_backward). @return of each microbatch, on the rank of the last stage; elsewhere empty.
  std::vector<TokenScores> score(std::span<const Microbatch> microbatches);

  /// Of the last forward_backward, in seconds since it began.
  const std::vector<TimedAction>& timeline() const { return timeline_; }
  std::chrono::steady_clock::time_point began() const { return began_; }
  const Schedule& schedule() const { return schedule_; }

 private:
  class Pass;

  std::vector<Stage*> chunks_;
  comm::Communicator& ranks_;
  const Observers* observers_;
  Schedule schedule_;
  std::vector<std::array<int64_t, 2>> expected_;  ///< sequences and tokens that each chunk was told last
  std::vector<TimedAction> timeline_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace athanor
