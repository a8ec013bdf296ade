#pragma once
// Runs a schedule over the ranks of a pipeline: computes the stages' microbatches, and sends messages between ranks.

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "layout/schedule.h"
#include "parallel/observer.h"
#include "parallel/stage.h"

namespace athanor::inline parallel {

class Pipeline {
 public:
  /// All arguments must outlive this.
  /// @param chunks  this rank's stages, in the order of forward; at least one.
  /// @param ranks  GroupKind::kPipeline.
  /// @param observers  see the tensors sent in training; null: none.
  Pipeline(std::vector<Stage*> chunks, comm::Communicator& ranks, const Observers* observers = nullptr);

  /// Sets the schedule of the following steps, which need one. It must be for this number of ranks
  /// and chunks. @throws Error as check_schedule (layout/schedule.h).
  void set_schedule(Schedule schedule);

  /// Runs a PipelinePass from its beginning to its end. It is collective and throws errors as that class does.
  LossParts forward_backward(std::span<const Microbatch> microbatches, GradientReducer* sums = nullptr);

  /// Evaluates any number of microbatches, without gradients and without the schedule. They may differ in size: a stage
  /// is told of each change (Stage::expect). Collective over the pipeline, whose ranks pass the same microbatches.
  /// @return on the rank of the last stage the scores of each microbatch; empty elsewhere.
  std::vector<TokenScores> score(std::span<const Microbatch> microbatches);

  /// This rank's actions in the last PipelinePass; times in seconds since it began, which was at began().
  const std::vector<TimedAction>& timeline() const { return timeline_; }
  std::chrono::steady_clock::time_point began() const { return began_; }
  const Schedule& schedule() const { return schedule_; }

 private:
  friend class PipelinePass;
  class Messages;

  std::vector<Stage*> chunks_;
  comm::Communicator& ranks_;
  const Observers* observers_;
  Schedule schedule_;
  std::vector<std::array<int64_t, 2>> expected_;  ///< sequences and tokens in each chunk's last call of expect
  std::vector<TimedAction> timeline_;
  std::chrono::steady_clock::time_point began_;
};

/// Forward and backward of the microbatches of a step. For each of actions(), in order: receive(), compute(), send();
/// then finish(). Sends and receives continue while other microbatches are computed. Collective over the pipeline,
/// whose ranks pass the same microbatches. All functions @throw CommError.
class PipelinePass {
 public:
  /// @param microbatches  Schedule::microbatches of them.
  PipelinePass(Pipeline& pipeline, std::span<const Microbatch> microbatches);
  ~PipelinePass();

  const std::vector<Action>& actions() const;
  /// Waits for the input of an action: for a forward on the first stage, tokens; for a backward on the last stage,
  /// undefined.
  Tensor receive(const Action& action);
  /// Computes the action. Gradients are added into the buckets.
  /// @param sums  starts to sum gradients as soon as they are final, which is in the backward of the last microbatch
  ///              (Stage::backward); null: the caller begins when all are.
  Tensor compute(const Action& action, Tensor input, GradientReducer* sums);
  /// Sends the result to the stage that waits for it.
  void send(const Action& action, Tensor output);
  /// Waits until all has been sent. @return the parts of this rank's stages, summed over stages and microbatches.
  LossParts finish();

 private:
  double now_s() const;

  Pipeline& pipeline_;
  std::unique_ptr<Pipeline::Messages> messages_;
  std::vector<LossParts> parts_;  // for each microbatch and chunk
  double asked_s_ = 0, begin_s_ = 0;
};

}  // namespace athanor::inline parallel
