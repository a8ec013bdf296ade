#pragma once
// Balances experts' loads by changing choices, in addition to a loss or instead of it.
//
// Balancing acts in training, on balance groups of `moe.balance_group` consecutive sequences of the global batch, so
// that the layout cannot change its results. Choices are int64 expert ids [tokens, k]. A dropped choice becomes
// ~expert, which is negative: it records the expert that was chosen, but no expert takes it.

#include <cstdint>
#include <span>

#include "config/moe_config.h"

namespace athanor::moe {

struct BalanceOptions {
  Balance kind = Balance::kNone;
  int64_t group_sequences = 1;  ///< sequences of a balance group
  double capacity_factor = 1.25;
  CapacityOrder order = CapacityOrder::kScore;

  bool needs_scores() const { return kind == Balance::kCapacity && order == CapacityOrder::kScore; }
};

struct BalanceCounts {
  int64_t moved = 0;    ///< choices given to an expert that their token had not chosen
  int64_t dropped = 0;  ///< choices that no expert takes
};

/// Balances one whole group.
/// @param ids     [tokens, k], best first, in token order; rewritten.
/// @param scores  [tokens, k] of the choices, for the capacity's order by score; empty if not needed.
BalanceCounts balance_group(const BalanceOptions& options, std::span<int64_t> ids, std::span<const float> scores,
                            int64_t k, int64_t num_experts);

/// Gives token t of the group the experts (t · k + j) % num_experts for j in [0, k): the shares are equal if they can
/// be.
/// @param ids  of consecutive tokens, the first of which is token `first_token` of the group; rewritten.
/// @return how many of the new choices their token had not made.
int64_t force_uniform(std::span<int64_t> ids, int64_t k, int64_t num_experts, int64_t first_token = 0);

/// Returns the most of `tokens` tokens, of `num_sequences` sequences in all, that can choose one expert after
/// balancing; −1 if balancing sets no limit.
int64_t most_choices_of_expert(const BalanceOptions& options, int64_t num_sequences, int64_t tokens, int64_t k,
                               int64_t num_experts);

/// Returns the most choices that an expert takes of `num_choices`: ⌈factor · num_choices / num_experts⌉, at least 1.
int64_t expert_capacity(double factor, int64_t num_choices, int64_t num_experts);

}  // namespace athanor::moe
