#pragma once
// Runs a schedule over the ranks of a pipeline: computes the stages' microbatches, and sends messages between ranks.

#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "layout/schedule.h"
#include "parallel/observer.h"
#include "parallel/stage.h"

namespace athanor {

struct PipelineHooks {
  /// Called before the last backward of a chunk in this step, during which its gradients become final.
  std::function<void(int chunk)> before_last_backward;
  /// Called after each action; the time since the previous call was spent on it.
  std::function<void(const Action&)> after;
};

class Pipeline {
 public:
  /// @param chunks  this rank's stages, in order; they must outlive this.
  /// @param ranks  GroupKind::kPipeline.
  /// @param observers  see the tensors sent in training; null: none.
  Pipeline(std::vector<Stage*> chunks, comm::Communicator& ranks, const Observers* observers = nullptr);

  /// Sets and checks (layout/schedule.h) the schedule of the following steps; there is none before the first call.
  void set_schedule(Schedule schedule);

  /// Runs forward and backward of all microbatches (the schedule's number). Sends and receives continue while other
  /// microbatches are computed. Collective over the pipeline.
  /// @return the parts of this rank's stages, summed.
  LossParts forward_backward(std::span<const Microbatch> microbatches, const PipelineHooks& hooks = {});

  /// Scores the microbatches one after the other; they may differ in size (Stage::expect is called for each, and again
  /// for those of forward_backward).
  /// @return the scores of each microbatch on the rank of the last stage; empty elsewhere.
  std::vector<TokenScores> score(std::span<const Microbatch> microbatches);

  /// The actions of the last forward_backward; times in seconds since it began.
  const std::vector<TimedAction>& timeline() const { return timeline_; }
  std::chrono::steady_clock::time_point began() const { return began_; }
  const Schedule& schedule() const { return schedule_; }

 private:
  class Pass;

  std::vector<Stage*> chunks_;
  comm::Communicator& ranks_;
  const Observers* observers_;
  Schedule schedule_;
  std::vector<std::array<int64_t, 2>> expected_;  ///< sequences and tokens in each chunk's last call of expect
  std::vector<TimedAction> timeline_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace athanor
