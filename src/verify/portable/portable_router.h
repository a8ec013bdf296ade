#pragma once
// The router of one sparse layer in plain torch calls and fp64: scores, choices, weights, and the sums from which the
// balancing and z-losses are made. Source: OLMoE §2; z-loss: ST-MoE, equation 5; sigmoid scores: DeepSeek-V3, §2.1.2.

#include <ATen/ATen.h>

#include <vector>

#include "config/run_config.h"

namespace athanor::inline verify::portable {

using at::Tensor;

/// The tokens that are routed together: B sequences of equal length, in order.
struct RoutedTokens {
  int64_t layer = 0, step = 0;  ///< index of the layer in the model, number of the update from 1
  int64_t num_sequences = 0;    ///< B
  int64_t first_sequence = 0;   ///< index of the first of them in the global batch
};

/// The result of routing: B sequences, T tokens in all, E experts. Tensors are fp64.
struct Routed {
  Tensor weights_TE;   ///< weight of each expert in a token's output; 0 if it has no part
  Tensor prob_sum_BE;  ///< Σ over a sequence's tokens of the probabilities
  Tensor z_sum;        ///< Σ over tokens of logsumexp²
  Tensor count_BE;     ///< choices of each expert before balancing
  double entropy_sum = 0;
  std::vector<int64_t> chosen, taken;  ///< [E], before and after balancing
  int64_t moved = 0, dropped = 0;
};

/// Routes the tokens of one layer, as in training.
/// @param bias_E  added to scores for choosing; undefined: none.
Routed route(const RunConfig& config, const Tensor& logits_TE, const Tensor& bias_E, const RoutedTokens& tokens);

/// Returns the balancing loss over a microbatch's layers, a sum over layers and sequences; moe.aux_scope determines the
/// tokens that it is computed from.
/// @param previous_share_LE  choices of each expert per token in the previous step; k / E at first.
Tensor balancing_loss(const RunConfig& config, const std::vector<Routed>& layers, const Tensor& previous_share_LE);

}  // namespace athanor::inline verify::portable
