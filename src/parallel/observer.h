#pragma once
// Observers look at the tensors of a step while it is computed. Statistics, checks for values that are not finite,
// timelines and deliberate faults are observers; the code that they look at knows none of them. The list is empty
// unless the run is built with observers; an empty list costs one comparison.
//
//   place                      phase                 the tensor
//   model.embed_tokens         forward, backward     embedded tokens
//   model.layers.3.logits      forward               for observers that ask for it: largest_attention_logits of this
//                                                    rank's heads (ops/attention.h), [B, heads]
//   model.layers.3.self_attn   forward, backward     what attention adds to the residual stream
//   model.layers.3.mlp         forward, backward     what the feed-forward, dense or sparse, adds to it
//   model.layers.3             forward, backward     the residual stream after the layer
//   model.norm                 forward, backward     what the output layer reads
//   pipeline.to_stage.1        forward, backward     hidden states, or their gradient, about to be sent to stage 1
//   pipeline.from_stage.1      forward, backward     the same, as they came from stage 1
//   buckets.7.dense            reduce                a bucket's gradients in the type that is sent, about to be summed
//   buckets.7.dense            reduced               the part that this rank owns, summed over data ranks
//   buckets.7.tied             added over replicas   the same part after the sum over, or the broadcast among,
//                                                    tensor or pipeline ranks that hold the same parameters
//
// Forward shows the places in the order of the table, backward in the reverse order, each once for each microbatch.
// Tensors of the model are [B, T, D], or, under sequence parallelism over n tensor ranks, a rank's tokens
// [1, B·T/n, D]. Backward shows the gradient of the tensor that forward showed at the same place, summed over all its
// readers. Layers are numbered in the whole model, from 0, so such a place belongs to one pipeline stage. If whole
// layers are computed again in backward (parallelism.recompute = "layer"), their three places are shown again in phase
// `recompute`; other recomputation shows nothing. Evaluation and generation show nothing.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/tensor.h"

namespace athanor::inline parallel {

struct Observation {
  enum class Phase {
    kForward,
    kRecompute,  ///< forward again, within backward
    kBackward,   ///< `tensor` is a gradient
    kReduce,     ///< the bucket is about to be summed
    kReduced,    ///< the bucket has been summed over data ranks
    /// The bucket has also been summed over the ranks of GroupPlan::replicas, or taken from the first of them.
    kAddedOverReplicas,
  };
  static constexpr int kAllMicrobatches = -1;

  std::string_view place;  ///< valid during the call
  Phase phase;
  int microbatch;  ///< index in this rank's step, from 0; kAllMicrobatches for buckets
  /// The tensor, on the host or a device. Its memory belongs to the step, which may overwrite it right after the call:
  /// an observer that keeps the values copies them. Values that an observer writes into the tensor replace the original
  /// ones in the rest of the step, except in a whole layer's output, which has been read by then.
  const Tensor& tensor;
  /// The microbatch's first sequence in the global batch; −1 if the place does not know it (pipeline.*, buckets.*).
  int64_t first_sequence = -1;
};

/// Returns the name of a phase, for example "forward" or "added over replicas".
const char* phase_name(Observation::Phase phase);

class Observer {
 public:
  virtual ~Observer() = default;
  /// Called on the thread that trains, without gradients. Must not wait for a device or for another rank: reduce values
  /// where they are, and read them after the step. An exception ends the step.
  virtual void observe(const Observation& observation) = 0;
  /// Called before the first microbatch of a step, and when the last bucket has been summed. Sends of a step outside of
  /// this (norms, counts) are not part of the dataflow that observers see.
  virtual void begin_gradients() {}
  virtual void end_gradients() {}
  /// True if it wants to see the largest logits of attention.
  virtual bool wants_attention_logits() const { return false; }
};

/// A list of observers, which are called in the order in which they were added.
class Observers {
 public:
  /// Adds an observer, which is not null. To be called between steps.
  void add(std::shared_ptr<Observer> observer) { observers_.push_back(std::move(observer)); }
  /// Removes an observer, if it is in the list. To be called between steps.
  void remove(const std::shared_ptr<Observer>& observer) { std::erase(observers_, observer); }
  /// True if there is no observer, or while a Pause exists.
  bool empty() const { return pauses_ > 0 || observers_.empty(); }
  void begin_gradients() const;
  void end_gradients() const;
  /// Calls every observer, even during a pause: callers look at empty() first.
  void tell(const Observation& observation) const;
  /// True if any of them wants attention logits.
  bool want_attention_logits() const;
  /// Calls the observers that want them with `largest`.
  void tell_attention_logits(const std::string& place, int microbatch, const Tensor& largest) const;

  /// While it exists, a step shows nothing to the observers.
  class Pause {
   public:
    explicit Pause(Observers& observers) : observers_(observers) { ++observers_.pauses_; }
    ~Pause() { --observers_.pauses_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Observers& observers_;
  };

 private:
  std::vector<std::shared_ptr<Observer>> observers_;
  int pauses_ = 0;
};

/// Shows one microbatch's tensors in a stage to the observers; does nothing if there are none.
class Watch {
 public:
  using Phase = Observation::Phase;

  Watch() = default;
  /// @param observers  null: none. They must outlive the microbatch's backward.
  /// @param first_sequence  see Observation.
  Watch(const Observers* observers, int microbatch, int64_t first_sequence = -1)
      : observers_(observers && !observers->empty() ? observers : nullptr), microbatch_(microbatch),
        first_sequence_(first_sequence) {}

  explicit operator bool() const { return observers_ != nullptr; }

  /// Shows `x`, the output of `place`, to the observers now.
  void forward(const std::string& place, const Tensor& x, Phase phase = Phase::kForward) const {
    if (observers_) tell(place, phase, x);
  }
  /// True if an observer wants attention logits.
  bool wants_attention_logits() const { return observers_ && observers_->want_attention_logits(); }
  /// Shows the largest logits of each sequence and head to the observers that want them.
  void attention_logits(const std::string& place, const Tensor& largest) const {
    if (observers_) observers_->tell_attention_logits(place, microbatch_, largest);
  }
  /// Shows the gradient of `x` when backward has it, if `x` requires one. If this is called for several places with one
  /// tensor, the gradient is shown in the order of the calls.
  /// @param place  must outlive backward.
  void backward(const std::string& place, const Tensor& x) const {
    if (observers_) tell_gradient(place, x);
  }

 private:
  void tell(const std::string& place, Phase phase, const Tensor& x) const;
  void tell_gradient(const std::string& place, const Tensor& x) const;

  const Observers* observers_ = nullptr;
  int microbatch_ = 0;
  int64_t first_sequence_ = -1;
};

}  // namespace athanor::inline parallel
