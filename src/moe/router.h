#pragma once
// Which experts a token goes to, and with which weight.

#include <cmath>
#include <string>
#include <vector>

#include "moe/balance.h"
#include "ops/experts.h"
#include "ops/tensor.h"
#include "parallel/stage.h"

namespace athanor::comm {
class Communicator;
}

namespace athanor::moe {

/// From a router's logits to scores in fp32. Everything else (weights, top-k, losses) is made of scores.
enum class RouterScore {
  kSoftmax,  ///< over all experts
  kSigmoid,  ///< of each expert by itself (DeepSeek-V3, §2.1.2)
};

RouterScore parse_router_score(const std::string& name);

/// Where in the run tokens stand.
struct BatchPosition {
  int64_t step = 0;            ///< number of the update
  int64_t first_sequence = 0;  ///< of the tokens' first sequence in the global batch
};

/// Normal noise on the logits by which experts are chosen. Each number is a function of seed, layer, step, the token's
/// place in the global batch, and the expert.
struct RouterNoise {
  /// 0: none. Infinity: logits count for nothing, so that choices, and what a capacity keeps by score, are functions of
  /// counters alone; a rounding cannot change them (train/verify/bf16_run.h).
  double stddev = 0;
  uint64_t seed = 0;
  int64_t layer = 0;
  BatchPosition position;

  bool decides_alone() const { return std::isinf(stddev); }
};

/// How one layer routes.
struct RouterOptions {
  int64_t k = 1;  ///< choices of each token
  RouterScore score = RouterScore::kSoftmax;
  bool norm_topk_prob = false;  ///< a token's chosen scores are scaled to sum to 1
  double scaling_factor = 1;    ///< then multiplied by this
  Tensor bias_E{};              ///< fp32, added to the scores for choosing only; undefined: none
  /// In training only. Evaluation neither balances nor draws noise, so that a token's result does not depend on others,
  /// and counts nothing.
  bool training = true;
  BalanceOptions balance{};
  /// The ranks that a balance group spans, in its order; null, or one rank: groups are within what is routed at once.
  comm::Communicator* balance_ranks = nullptr;
  RouterNoise noise{};
  int64_t expert_ranks = 1;  ///< experts are shared by so many, for Routing::to_rank_R
};

/// What of that a run decides, for all its layers.
struct RoutingPolicy {
  BalanceOptions balance{};
  comm::Communicator* balance_ranks = nullptr;  ///< GroupKind::kBalance; outlives the model
  int64_t expert_ranks = 1;                     ///< Layout::expert
  double noise_stddev = 0;
  uint64_t seed = 0;
  ops::CombineWeights combine = ops::CombineWeights::kAfterDown;
};

ops::CombineWeights parse_combine_weights(const std::string& name);

/// What a routing decided. Saved by forward and handed back for the recomputation in backward, which decides nothing:
/// it makes the same weights again, with gradients.
struct Choices {
  Tensor expert_ids_TK;  ///< int64, best first; a choice that was dropped holds ~expert, which is negative
};

/// B sequences, T tokens in all, E experts, K chosen.
struct Routing {
  Tensor weights_TK;     ///< fp32, differentiable; 0 where dropped
  Tensor expert_ids_TK;  ///< as in Choices

  // Of training: differentiable sums for the losses, fp32. A probability is a score, divided by the sum of its token's.
  Tensor prob_sum_BE;  ///< Σ over a sequence's tokens of the probabilities
  Tensor z_sum;        ///< Σ over tokens of logsumexp²

  // Of training, counted where it was decided: not where choices were given.
  Tensor count_BE;          ///< choices of each expert in each sequence before balancing, fp32
  Tensor load_E;            ///< choices that each expert takes, int64
  Tensor to_rank_R;         ///< tokens with a choice on each of several expert ranks, int64; undefined for one
  double entropy_sum = 0;   ///< Σ over tokens of the entropy of their probabilities, nats
  int64_t num_moved = 0;    ///< choices that balancing gave to another expert
  int64_t num_dropped = 0;  ///< choices that no expert takes
  int64_t num_flat = 0;     ///< tokens whose scores are all equal

  Choices choices() const { return {expert_ids_TK}; }
};

/// Scores in fp32; with noise and bias, the k largest (equal ones go to the lower index); balance.
/// @param x_TD   tokens of `num_sequences` sequences of equal length, in order; whole balance groups of them, or, where
///               groups span ranks, this one's part of one. Then, unless `saved` is given, it is collective over
///               balance_ranks: one all-gather (balance_ranks.h).
/// @param saved  null, or what an earlier call for the same tokens decided: nothing is chosen or counted again.
/// Backward adds into weight.grad. Source: OLMoE §2; z-loss: ST-MoE, equation 5; bias: DeepSeek-V3, §2.1.2.
Routing route(const Tensor& x_TD, const Weight& weight_ED, const RouterOptions& options, int64_t num_sequences,
              const Choices* saved = nullptr);

/// The counts of all layers of a microbatch; of routings that decided.
RouterCounts count_routings(const std::vector<Routing>& layers);

/// Balancing without a loss: each bias goes up by `rate` where an expert was chosen less than the mean, down where
/// more.
/// @param bias_LE   [layers, experts] fp32, in place. @param count_LE  choices over the whole batch, int64.
void update_router_bias(const Tensor& bias_LE, const Tensor& count_LE, double rate);

}  // namespace athanor::moe
