#pragma once
// Which experts a token goes to, and with which weight.

#include "ops/tensor.h"

namespace athanor::moe {

/// From a router's logits to scores in fp32. Everything else (weights, top-k, losses) is made of scores.
enum class RouterScore {
  kSoftmax,  ///< over all experts
  kSigmoid,  ///< of each expert by itself (DeepSeek-V3, §2.1.2)
};

RouterScore parse_router_score(const std::string& name);

/// How one layer routes.
struct RouterOptions {
  int64_t k = 1;  ///< choices of each token
  RouterScore score = RouterScore::kSoftmax;
  bool norm_topk_prob = false;  ///< a token's chosen scores are scaled to sum to 1
  double scaling_factor = 1;    ///< then multiplied by this
};

/// What a routing decided. Saved by forward and handed back for the recomputation in backward, which decides nothing:
/// it makes the same weights again, with gradients.
struct Choices {
  Tensor expert_ids_TK;  ///< int64, best first; a choice that was dropped holds ~expert, which is negative
};

/// B sequences, T tokens in all, E experts, K chosen.
struct Routing {
  Tensor weights_TK;     ///< fp32, differentiable; 0 where dropped
  Tensor expert_ids_TK;  ///< as in Choices
  Tensor prob_sum_BE;    ///< Σ over a sequence's tokens of the scores, made to sum to 1 over experts; differentiable
  Tensor z_sum;          ///< Σ over tokens of logsumexp², differentiable
  Tensor count_BE;       ///< choices of each expert in each sequence, fp32; undefined where choices were given
  Tensor entropy_sum;    ///< Σ over tokens of the entropy of those scores, nats; undefined where choices were given

  Choices choices() const { return {expert_ids_TK}; }
};

/// Scores in fp32, then the k largest (equal ones go to the lower index).
/// @param x_TD   tokens of `num_sequences` sequences of equal length, in order.
/// @param saved  null, or what an earlier call for the same tokens decided: nothing is chosen or counted again.
/// Backward adds into weight.grad. Source: OLMoE §2; z-loss: ST-MoE, equation 5.
Routing route(const Tensor& x_TD, const Weight& weight_ED, const RouterOptions& options, int64_t num_sequences,
              const Choices* saved = nullptr);

}  // namespace athanor::moe
