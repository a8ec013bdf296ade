#pragma once
// Choices of experts, token by token, as the definitions say them: the k best, and what balancing makes of them.
//
// Written apart from moe/, in plain loops over lists, to be held against it. E experts, k choices of each token.

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::portable {

inline constexpr int64_t kDropped = -1;

/// One for each token: its experts, best first; kDropped where no expert takes a choice.
using Choices = std::vector<std::vector<int64_t>>;

/// The k largest of each token's scores; of equal ones the lower expert.
Choices choose_best(const std::vector<std::vector<double>>& scores, int64_t k);

/// What moe.balance makes of the choices of one group of sequences.
/// @param scores  [tokens][E], without what is added for choosing alone: capacity_order "score" goes by them.
Choices balance(const MoeConfig& moe, const Choices& chosen, const std::vector<std::vector<double>>& scores,
                int64_t num_experts);

}  // namespace athanor::portable
