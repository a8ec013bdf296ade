#pragma once
// A rule that balances experts' loads (moe/balance.h), in its two forms. A further rule is one class, a row of the
// table in balance.cpp, and a word of moe.balance.

#include "kernels/cuda/balance.h"
#include "moe/balance.h"
#include "ops/tensor.h"

namespace athanor::moe {

/// The choices of whole groups on a device, on which the rule's kernel runs.
struct GroupsThere {
  Tensor chosen_TK;  ///< int64, what routers chose; without values if the rule does not read it (reads_choices)
  Tensor scores_TE;  ///< fp32; undefined unless BalanceOptions::needs_scores
  kernels::cuda::ChoiceGroups sizes;
};

class BalanceRule {
 public:
  virtual ~BalanceRule() = default;
  /// balance_group.
  virtual BalanceCounts balance(const BalanceOptions& options, std::span<int64_t> ids, std::span<const float> scores,
                                int64_t k, int64_t num_experts) const = 0;
  /// Queues the kernel that sets ids_TK to what the rule makes of the choices.
  virtual void launch(const BalanceOptions& options, const GroupsThere& groups, const Tensor& ids_TK) const = 0;
};

/// Returns the rule of this name. @throws Error for kNone, which is none.
const BalanceRule& balance_rule(Balance kind);

}  // namespace athanor::moe
