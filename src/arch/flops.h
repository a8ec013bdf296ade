#pragma once
// FLOPs of a training step: the sum over all matrix multiplications, each from its three extents.
//
// One multiply-add is two FLOPs. Norms, activations, softmax and the optimizer are not counted (under 1% at usual
// sizes). Attention counts each instance as one span, even if it is limited to documents.

#include <cstdint>

#include "config/model_config.h"
#include "config/parallelism_config.h"

namespace athanor::inline arch {

struct LayerSpec;

struct FlopCount {
  double attention_projections = 0;
  double attention_scores = 0;  ///< QKᵀ and PV over the causal half only
  double feed_forward = 0;      ///< router, the k chosen and the shared experts, or the dense layer
  double output = 0;            ///< the language-model head
  double total() const { return attention_projections + attention_scores + feed_forward + output; }
};

/// Returns the forward FLOPs of `num_sequences` instances of `seq_len` tokens.
FlopCount count_forward_flops(const ModelConfig& model, int64_t num_sequences, int64_t seq_len);

/// Returns the forward FLOPs of one layer; `output` is 0.
FlopCount count_layer_flops(const LayerSpec& layer, int64_t num_sequences, int64_t seq_len);

/// Returns the forward FLOPs of the language-model head.
double count_output_flops(const ModelConfig& model, int64_t num_tokens);

/// Returns the FLOPs of forward and backward. Each multiplication has two in backward (for input and weight). What
/// backward computes again is not counted, so that MFU measures useful work.
double count_train_flops(const ModelConfig& model, int64_t num_sequences, int64_t seq_len);

/// Returns the FLOPs that forward and backward execute: count_train_flops, and what backward computes again, which is
/// the modules of `kinds`, and QKᵀ in each backward of attention.
double count_executed_flops(const ModelConfig& model, const RecomputeKinds& kinds, int64_t num_sequences,
                            int64_t seq_len);

}  // namespace athanor::inline arch
