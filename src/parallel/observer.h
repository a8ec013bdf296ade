#pragma once
// Observers: what looks at a step while it is computed. Statistics, checks for values that are not finite, time lines
// and rehearsed faults are observers; none of them is known to the code that they look at. The list is empty unless a
// run is built with some, and costs one comparison then.
//
//   place                      phase                 the tensor
//   model.embed_tokens         forward, backward     embedded tokens
//   model.layers.3.self_attn   forward, backward     what attention adds to the residual stream
//   model.layers.3.mlp         forward, backward     what the feed-forward, dense or sparse, adds to it
//   model.layers.3             forward, backward     the residual stream after the layer
//   model.norm                 forward, backward     what the output layer reads
//   pipeline.to_stage.1        forward, backward     hidden states, or their gradient, about to be sent to stage 1
//   buckets.7.dense            reduce                a bucket's gradients in the type that travels, about to be summed
//   buckets.7.dense            reduced               what of them this rank owns, summed over data ranks
//   buckets.7.tied             added beside          the same after the sum beside data ranks (ShardPlan), where one is
//
// Forward comes in the order of the table, backward in the reverse one, each once for each microbatch. Tensors of the
// model are [B, T, D], or a tensor rank's tokens [1, B·T/n, D] under sequence parallelism; backward shows the gradient
// of what forward showed at the same place, summed over all who read it. Layers are numbered in the model, so that a
// place is of one pipeline stage; what a stage receives has been shown where it was sent. What is computed again in
// backward has a phase of its own. Evaluation and generation show nothing.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/tensor.h"

namespace athanor {

struct Observation {
  enum class Phase {
    kForward,
    kRecompute,    ///< forward again, within backward (parallelism.recompute)
    kBackward,     ///< `tensor` is a gradient
    kReduce,       ///< a bucket is about to be summed
    kReduced,      ///< it has been
    kAddedBeside,  ///< and has been summed, or taken from the first, over the ranks beside data ranks
  };
  static constexpr int kAllMicrobatches = -1;

  std::string_view place;  ///< valid during the call
  Phase phase;
  int microbatch;  ///< of this rank's step, from 0; of buckets kAllMicrobatches
  /// On the host or a device. Its memory is the step's own and may be spent right after: who keeps it copies it. What
  /// is written into it goes on in its place; not into a whole layer's output, which has been read by then.
  const Tensor& tensor;
};

/// "forward", "added beside".
const char* phase_name(Observation::Phase phase);

class Observer {
 public:
  virtual ~Observer() = default;
  /// On the thread that trains, without gradients. Never waits for a device or another rank: values are reduced where
  /// they are, and read after the step. What it throws ends the step.
  virtual void observe(const Observation& observation) = 0;
};

/// Called in the order in which they were added.
class Observers {
 public:
  /// Between steps.
  void add(std::shared_ptr<Observer> observer) { observers_.push_back(std::move(observer)); }
  bool empty() const { return observers_.empty(); }
  void tell(const Observation& observation) const;

 private:
  std::vector<std::shared_ptr<Observer>> observers_;
};

/// One microbatch on its way through a stage, as its observers see it; nothing, where there are none.
class Watch {
 public:
  using Phase = Observation::Phase;

  Watch() = default;
  /// @param observers  null: none. They outlive the microbatch's backward.
  Watch(const Observers* observers, int microbatch)
      : observers_(observers && !observers->empty() ? observers : nullptr), microbatch_(microbatch) {}

  explicit operator bool() const { return observers_ != nullptr; }

  /// `x` leaves `place`.
  void forward(const std::string& place, const Tensor& x, Phase phase = Phase::kForward) const {
    if (observers_) tell(place, phase, x);
  }
  /// Asks to hear of the gradient of `x`, if it will have one. Of several that ask for one tensor's, the first is told
  /// first. @param place  outlives backward.
  void backward(const std::string& place, const Tensor& x) const {
    if (observers_) tell_gradient(place, x);
  }

 private:
  void tell(const std::string& place, Phase phase, const Tensor& x) const;
  void tell_gradient(const std::string& place, const Tensor& x) const;

  const Observers* observers_ = nullptr;
  int microbatch_ = 0;
};

}  // namespace athanor
