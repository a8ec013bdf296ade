#pragma once
// The interface of a pipeline stage, which a schedule drives. A whole model is one stage; a pipeline has several.

#include <memory>
#include <vector>

#include "ops/attention.h"
#include "ops/label_draw.h"
#include "ops/tensor.h"
#include "ops/tree_attention.h"
#include "parallel/router_counts.h"

namespace athanor::inline parallel {

/// The shape and type of a tensor that does not exist yet, so that a receiver can allocate memory for it.
struct Spec {
  std::vector<int64_t> shape;
  at::ScalarType dtype;
};

/// The data of a microbatch other than its tokens.
struct Labels {
  Tensor targets;                  ///< [B, T] int64, −100 if there is none
  int64_t num_targets = -1;        ///< number of targets; −1: counted, which a device does not allow
  ops::DocumentLengths documents;  ///< empty: attention spans the instance
  /// In evaluation only: the tokens [1, N] are those of this tree, and attention follows it; null: instances.
  std::shared_ptr<const ops::TokenTree> tree;
  /// With a tree: int64 [S], the token after which each of the targets [1, S] is expected. A token may occur several
  /// times, in any order.
  Tensor rows;
  // Gradients are those of loss_scale · loss + aux_scale · aux + z_scale · z (LossParts::sums). Added up over
  // microbatches and ranks, they are the gradient of the global batch's loss, in which these sums are means.
  double loss_scale = 1;  ///< 1 / targets in the global batch
  double aux_scale = 0;   ///< moe.router_aux_loss_coef / (sparse layers · sequences in the global batch)
  double z_scale = 0;     ///< moe.router_z_loss_coef / (sparse layers · tokens in the global batch)
  int64_t step = 0;       ///< number of the update in the run, from 1; 0 in evaluation
  /// The first sequence's index in the global batch; random numbers depend on it and on `step`.
  int64_t first_sequence = 0;
  /// If it draws, labels drawn from the model's probabilities take the place of the targets.
  ops::LabelDraw draw = {};
  /// On a device: tokens, targets and tables of documents in one tensor, of which they are views
  /// (train/microbatch.h). Undefined on the host.
  Tensor packed;
};

/// The input of one pass through the pipeline: in training at most train.micro_batch_size sequences.
struct Microbatch {
  Tensor tokens;  ///< [B, T] int64
  Labels labels;
};

/// Sums and counts of a microbatch, never means. A stage fills in what it computes (the last one the loss, each its
/// routers), so adding up over microbatches, stages and data ranks counts everything once. Tensor ranks have equal
/// ones.
struct LossParts {
  enum Sum : int64_t { kLoss, kAux, kZ, kNumSums };
  /// fp64 [3], where the model is: cross entropy over targets, nats; load-balancing loss (moe/balance_loss.h), over
  /// layers and sequences; router z-loss, over layers and tokens. Undefined: zeros.
  Tensor sums;
  int64_t num_targets = 0;
  RouterCounts routers;

  LossParts& operator+=(const LossParts& other) {
    if (other.sums.defined()) sums = sums.defined() ? sums + other.sums : other.sums;
    num_targets += other.num_targets;
    routers += other.routers;
    return *this;
  }
};

/// Evaluation's result for each position.
struct TokenScores {
  // Both have the shape of the targets.
  Tensor log_probability;  ///< fp32: of the position's target, in nats; 0 without a target
  Tensor is_greedy;        ///< bool: greedy decoding chooses the target; false without a target
};

class GradientReducer;

struct Stage {
  /// The tensors that forward receives and sends, [B, T, D], or a tensor rank's tokens under sequence parallelism
  /// (tensor_parallel.h). Gradients have the same. `in` of the first stage and `out` of the last have no shape.
  Spec in, out;

  virtual ~Stage() = default;
  /// Sets `in` and `out` for the following microbatches, of `batch` sequences with `seq_len` tokens each.
  /// @throws ConfigError if these are too many tokens for the stage.
  virtual void expect(int64_t batch, int64_t seq_len) = 0;

  // `microbatch` is the index in this rank's step; several may be between forward and backward at one time. x is token
  // ids [B, T] on the first stage, and hidden states (`in`) on the others. `labels` are never null, on every stage.

  /// Runs a microbatch forward and returns the hidden states for the next stage. The last stage computes the loss
  /// instead, and returns an undefined tensor.
  virtual Tensor forward(int microbatch, Tensor x, const Labels* labels) = 0;
  /// Runs the microbatch backward: adds weight gradients into the buckets and returns dx (undefined from the first
  /// stage). The last stage ignores dy.
  /// @param sums  null unless this is the last backward of the step, after which the stage's gradients are final: gets
  ///              GradientReducer::ready when those of a forward index (BucketEntry::forward_index), and of the stage's
  ///              larger ones, are in their buckets. The indices descend.
  virtual Tensor backward(int microbatch, Tensor dy, GradientReducer* sums) = 0;
  /// Returns the microbatch's parts; to be called once, after its backward.
  virtual LossParts take_parts(int microbatch) = 0;
  /// Drops what is kept of a microbatch whose forward or backward has thrown; nothing if there is none.
  virtual void drop(int /*microbatch*/) {}
  /// For evaluation, without gradients, on all stages but the last. Returns hidden states for the next stage.
  virtual Tensor forward_only(Tensor x, const Labels* labels) = 0;
  /// For evaluation, without gradients, on the last stage.
  virtual TokenScores score(Tensor x, const Labels* labels) = 0;
};

}  // namespace athanor::inline parallel
