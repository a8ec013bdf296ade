#pragma once
// The router: chooses the experts that each token goes to, and their weights.

#include <cmath>
#include <memory>
#include <vector>

#include "config/model_config.h"
#include "moe/balance.h"
#include "ops/experts.h"
#include "ops/tensor.h"
#include "parallel/stage.h"

namespace athanor::comm {
class Communicator;
}

namespace athanor::moe {

struct RowCounts;

/// The position of a batch's tokens in the run.
struct BatchPosition {
  int64_t step = 0;            ///< the training step, from 1
  int64_t first_sequence = 0;  ///< index of the tokens' first sequence in the global batch, from 0
};

/// Normal noise on the logits by which experts are chosen. Each number is a function of seed, layer, step, the token's
/// position in the global batch, and the expert.
struct RouterNoise {
  /// The standard deviation. 0: no noise. Infinity: logits have no effect, so that choices, and those that a capacity
  /// keeps by score, are functions of counters alone; a rounding cannot change them (verify/small_model.h).
  double stddev = 0;
  uint64_t seed = 0;
  int64_t layer = 0;
  BatchPosition position;

  bool decides_alone() const { return std::isinf(stddev); }
};

/// The routing options of one layer.
struct RouterOptions {
  int64_t k = 1;  ///< number of choices of each token
  RouterScore score = RouterScore::kSoftmax;
  bool norm_topk_prob = false;  ///< a token's chosen scores are scaled to sum to 1
  double scaling_factor = 1;    ///< the chosen scores are then multiplied by this
  /// Groups of experts, of which a token first takes some (DeepSeek-V2, §2.1.3): those with the largest score, or of
  /// sigmoids the largest sum of two. 0: there are none.
  int64_t groups = 0, groups_taken = 0;
  Weight logit_bias_E{};  ///< added to the logits; undefined: none
  Tensor bias_E{};        ///< fp32, added to the scores for choosing only; undefined: none
  /// True in training. Evaluation neither balances nor draws noise, so that a token's result does not depend on others,
  /// and counts nothing.
  bool training = true;
  BalanceOptions balance{};
  /// The ranks that a balance group spans, in its order. Null, or one rank: each group is within the tokens routed in
  /// one call.
  comm::Communicator* balance_ranks = nullptr;
  bool balances_over_ranks() const;
  RouterNoise noise{};
};

/// The routing options that a run sets for all its layers.
struct RoutingPolicy {
  BalanceOptions balance{};
  comm::Communicator* balance_ranks = nullptr;  ///< GroupKind::kBalance; outlives the model
  int64_t expert_ranks = 1;                     ///< Layout::expert
  double noise_stddev = 0;
  uint64_t seed = 0;
  CombineWeights combine = CombineWeights::kAfterDown;
};

/// The choices of a routing. Forward saves them for the recomputation in backward, which chooses nothing: it computes
/// the same weights again, with gradients.
struct Choices {
  Tensor expert_ids_TK;  ///< int64, best first; a choice that was dropped holds ~expert, which is negative
  std::shared_ptr<RowCounts> counts = nullptr;  ///< what their dispatch found, if there is one
};

/// A routing of B sequences with T tokens in total, to K of E experts each.
struct Routing {
  Tensor weights_TK;     ///< fp32, differentiable; 0 if dropped
  Tensor expert_ids_TK;  ///< as in Choices

  // In training: differentiable sums for the losses, fp32. A probability is a score divided by the sum of the token's
  // scores.
  Tensor prob_sum_BE;  ///< Σ over a sequence's tokens of the probabilities
  Tensor z_sum;        ///< Σ over tokens of logsumexp²

  // In training: counts of this call's tokens. They are undefined if the choices were given (`saved` of route).
  Tensor count_BE;  ///< choices of each expert in each sequence before balancing, fp32
  Tensor load_E;    ///< choices that each expert takes, int64
  /// int64 [2 · E + 4]. First come the choices of each expert before balancing, load_E, the choices that balancing gave
  /// to another expert, and those that no expert takes. Then come the number of tokens whose scores are all equal, and
  /// the bits (fp64) of the sum over tokens of the entropy of their probabilities, nats.
  Tensor counts{};

  std::shared_ptr<RowCounts> row_counts = nullptr;  ///< what the dispatch of these choices found

  Choices choices() const { return {expert_ids_TK, row_counts}; }
};

/// Routes tokens: computes scores in fp32, chooses the k largest after noise and bias (of equal ones the lower index),
/// and balances. Backward adds into weight.grad, and into that of the logits' bias.
/// @param x_TD   tokens of `num_sequences` sequences of equal length, in order: whole balance groups, or, if groups
///        span ranks, this rank's part of one group. In the latter case, unless `saved` is given, the call is
///        collective over balance_ranks: one all-gather (balance_ranks.h), on a device two for the capacity's order by
///        score.
/// @param saved  null, or the choices of an earlier call for the same tokens: nothing is then chosen or counted again.
/// @throws ConfigError if balance groups do not fit the sequences. Source: OLMoE §2; z-loss: ST-MoE, equation 5; bias:
///         DeepSeek-V3, §2.1.2.
Routing route(const Tensor& x_TD, const Weight& weight_ED, const RouterOptions& options, int64_t num_sequences,
              const Choices* saved = nullptr);

/// Returns the counts of a microbatch, with one row for each of these layers, from routings that made choices.
/// @param expert_ranks  number of ranks that share the experts.
RouterCounts count_routings(const std::vector<Routing>& layers, int64_t expert_ranks = 1);

/// Balances without a loss: each expert's bias rises by `rate` if the expert was chosen less often than the mean, and
/// falls by `rate` if more often.
/// @param bias_LE   [layers, experts] fp32, changed in place.
/// @param count_LE  choices over the whole global batch before balancing, int64.
void update_router_bias(const Tensor& bias_LE, const Tensor& count_LE, double rate);

}  // namespace athanor::moe
