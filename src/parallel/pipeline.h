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
  /// Called before each action, and before the wait for its input.
  std::function<void(const Action&)> before;
  /// Called at the begin and at the end of what an action computes, within its times in timeline().
  std::function<void(const Action&)> begins, ends;
  /// Called before the last backward of a chunk in this step, during which its gradients become final.
  std::function<void(int chunk)> before_last_backward;
  /// Called after each action. The time since the previous call (or since forward_backward began) was spent on the
  /// action and on the wait for its input.
  std::function<void(const Action&)> after;
};

class Pipeline {
 public:
  /// All arguments must outlive this.
  /// @param chunks  this rank's stages, in the order of forward; at least one.
  /// @param ranks  GroupKind::kPipeline.
  /// @param observers  see the tensors sent in training; null: none.
  Pipeline(std::vector<Stage*> chunks, comm::Communicator& ranks, const Observers* observers = nullptr);

  /// Sets the schedule of the following calls of forward_backward, which need one. It must be for this number of ranks
  /// and chunks. @throws Error as check_schedule (layout/schedule.h).
  void set_schedule(Schedule schedule);

  /// Runs forward and backward of schedule().microbatches microbatches; gradients are added into the buckets. Sends and
  /// receives continue while other microbatches are computed. Collective over the pipeline, whose ranks pass the same
  /// microbatches. @throws CommError.
  /// @return the parts of this rank's stages, summed over stages and microbatches.
  LossParts forward_backward(std::span<const Microbatch> microbatches, const PipelineHooks& hooks = {});

  /// Evaluates any number of microbatches, without gradients and without the schedule. They may differ in size: a stage
  /// is told of each change (Stage::expect). Collective over the pipeline, whose ranks pass the same microbatches.
  /// @return on the rank of the last stage the scores of each microbatch; empty elsewhere.
  std::vector<TokenScores> score(std::span<const Microbatch> microbatches);

  /// This rank's actions in the last forward_backward; times in seconds since it began, which was at began().
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
