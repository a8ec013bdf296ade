#pragma once
// Choices of experts, token by token, directly from the definitions: the k best, and the result of balancing.
//
// They are written independently of moe/, in plain loops over lists, to be compared with it. There are E experts, and k
// choices of each token.

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline verify::portable {

inline constexpr int64_t kDropped = -1;

/// The choices of each token: its experts, best first; kDropped if no expert takes a choice.
using Choices = std::vector<std::vector<int64_t>>;

/// Returns the k largest of each token's scores; of equal scores, the lower expert's.
Choices choose_best(const std::vector<std::vector<double>>& scores, int64_t k);

/// Returns what moe.balance makes of the choices of one balance group; "none" returns them as they are.
/// @param scores  [tokens][E], without the terms that are added only for choosing: capacity_order "score" uses them.
Choices balance(const MoeConfig& moe, const Choices& chosen, const std::vector<std::vector<double>>& scores,
                int64_t num_experts);

}  // namespace athanor::inline verify::portable
