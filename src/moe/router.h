#pragma once
// Which experts a token goes to, and with which weight.

#include "ops/tensor.h"

namespace athanor::moe {

/// B sequences, T tokens in all, E experts, K chosen.
struct Routing {
  Tensor weights_TK;     ///< fp32, differentiable
  Tensor expert_ids_TK;  ///< int64, best first; equal scores go to the lower index
  Tensor prob_sum_BE;    ///< Σ over a sequence's tokens of the softmax, fp32, differentiable
  Tensor count_BE;       ///< choices of each expert in each sequence, fp32
  Tensor z_sum;          ///< Σ over tokens of logsumexp², differentiable
  Tensor entropy_sum;    ///< Σ over tokens of the softmax's entropy, nats
};

/// Softmax over experts in fp32, then the k largest; their probabilities sum to 1 only if `norm_topk_prob`.
/// @param x_TD  tokens of `num_sequences` sequences of equal length, in order.
/// Backward adds into weight.grad. Source: OLMoE §2; z-loss: ST-MoE, equation 5.
Routing route(const Tensor& x_TD, const Weight& weight_ED, int64_t num_sequences, int64_t k, bool norm_topk_prob);

}  // namespace athanor::moe
