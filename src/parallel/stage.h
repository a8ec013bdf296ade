#pragma once
// The interface of a pipeline stage, which a schedule drives. A whole model is one stage; a pipeline has several.

#include <functional>
#include <vector>

#include "ops/attention.h"
#include "ops/tensor.h"
#include "parallel/router_counts.h"

namespace athanor {

/// A tensor's shape and type, known before step 1.
struct Spec {
  std::vector<int64_t> shape;
  at::ScalarType dtype;
};

/// The data of a microbatch other than its tokens.
struct Labels {
  Tensor targets;                     ///< [B, T] int64, −100 if there is none
  ops::DocumentLengths documents;     ///< empty: attention spans the instance
  double loss_scale = 1;              ///< 1 / targets in the global batch
  double aux_scale = 0, z_scale = 0;  ///< coefficient / (layers · sequences), coefficient / (layers · tokens), globally
  int64_t step = 0;
  /// The first sequence's position in the global batch; random numbers depend on it and on `step`.
  int64_t first_sequence = 0;
};

/// The input of one pass of a stage: as many sequences as fit in memory at once.
struct Microbatch {
  Tensor tokens;  ///< [B, T] int64
  Labels labels;
};

/// Sums and counts of a microbatch, never means; each is counted once.
struct LossParts {
  double loss_sum = 0;
  int64_t num_targets = 0;
  double aux_sum = 0;  ///< over layers and sequences
  double z_sum = 0;    ///< over layers and tokens
  RouterCounts routers;

  LossParts& operator+=(const LossParts& other) {
    loss_sum += other.loss_sum;
    num_targets += other.num_targets;
    aux_sum += other.aux_sum;
    z_sum += other.z_sum;
    routers += other.routers;
    return *this;
  }
};

/// Evaluation's result for each position: its target's log-probability (0 without a target), and whether greedy
/// decoding chooses the target.
struct TokenScores {
  Tensor log_probability;  ///< [B, T] fp32
  Tensor is_greedy;        ///< [B, T] bool
};

/// Functions that a stage calls on its way through the parameters, with the forward index of the bucket table
/// (BucketEntry::forward_index).
struct StageHooks {
  std::function<void(int64_t forward_index)> before_forward;  ///< called before the weights of this index are read
  /// Called when all of this microbatch's gradients of this index and of larger ones are in their buckets. The indices
  /// descend.
  std::function<void(int64_t forward_index)> after_backward;
};

struct Stage {
  Spec in, out;  ///< the tensors received and sent; `in` of the first stage and `out` of the last are empty

  virtual ~Stage() = default;
  /// Sets `in` and `out` for microbatches of this many sequences and tokens each.
  virtual void expect(int64_t batch, int64_t seq_len) = 0;
  /// Runs a microbatch forward. x is token ids [B, T] on the first stage, hidden states [B, T, D] on the others. The
  /// last stage returns an empty tensor: its loss waits for `backward`.
  virtual Tensor forward(int microbatch, Tensor x, const Labels* labels) = 0;
  /// Adds weight gradients into the buckets and returns dx (undefined from the first stage). The last stage ignores dy.
  virtual Tensor backward(int microbatch, Tensor dy) = 0;
  virtual LossParts take_parts(int microbatch) = 0;
  /// For evaluation, without gradients. Returns hidden states for the next stage.
  virtual Tensor forward_only(Tensor x, const Labels* labels) = 0;
  /// For evaluation, on the last stage.
  virtual TokenScores score(Tensor x, const Labels* labels) = 0;
};

}  // namespace athanor
