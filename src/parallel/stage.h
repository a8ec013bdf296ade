#pragma once
// What a pipeline schedule drives. One stage is the whole model; a pipeline has several.

#include <vector>

#include "ops/attention.h"
#include "ops/tensor.h"

namespace athanor {

/// A tensor's shape and type, known before step 1.
struct Spec {
  std::vector<int64_t> shape;
  at::ScalarType dtype;
};

/// What is known of a microbatch beside its tokens.
struct Labels {
  Tensor targets;                     ///< [B, T] int64, −100 where there is none
  ops::DocumentLengths documents;     ///< empty: attention spans the instance
  double loss_scale = 1;              ///< 1 / targets in the global batch
  double aux_scale = 0, z_scale = 0;  ///< coefficient / (layers · sequences), coefficient / (layers · tokens), globally
};

/// Sums and counts of a microbatch, never means; each is taken once.
struct LossParts {
  double loss_sum = 0;
  int64_t num_targets = 0;
  double aux_sum = 0;        ///< over layers and sequences
  double z_sum = 0;          ///< over layers and tokens
  double entropy_sum = 0;    ///< of the router's distribution, over layers and tokens, nats
  Tensor tokens_per_expert;  ///< [layers, experts] int64; undefined for dense models

  LossParts& operator+=(const LossParts& other) {
    loss_sum += other.loss_sum;
    num_targets += other.num_targets;
    aux_sum += other.aux_sum;
    z_sum += other.z_sum;
    entropy_sum += other.entropy_sum;
    if (other.tokens_per_expert.defined()) {
      tokens_per_expert =
          tokens_per_expert.defined() ? tokens_per_expert + other.tokens_per_expert : other.tokens_per_expert;
    }
    return *this;
  }
};

/// Evaluation: for each position its target's log-probability (0 without a target) and whether greedy decoding chooses
/// it.
struct TokenScores {
  Tensor log_probability;  ///< [B, T] fp32
  Tensor is_greedy;        ///< [B, T] bool
};

struct Stage {
  Spec in, out;

  virtual ~Stage() = default;
  /// First stage: x is token ids [B, T]; others: hidden states [B, T, D]. The last stage answers an empty tensor: its
  /// loss waits for `backward`.
  virtual Tensor forward(int microbatch, Tensor x, const Labels* labels) = 0;
  /// Adds weight gradients into the buckets and returns dx (undefined from the first stage). The last stage ignores dy.
  virtual Tensor backward(int microbatch, Tensor dy) = 0;
  virtual LossParts take_parts(int microbatch) = 0;
  virtual TokenScores score(Tensor x, const Labels* labels) = 0;
};

}  // namespace athanor
