#pragma once
// Balances a group whose sequences are spread over ranks, with the result that one rank with all of them would get.

#include <functional>

#include "moe/balance.h"
#include "ops/tensor.h"

namespace athanor::comm {
class Communicator;
}

namespace athanor::moe {

/// One rank's part of a balance group. The group's `ranks` have the same number of tokens each, in the order of the
/// group.
struct GroupShare {
  int ranks = 1, index = 0;
  /// Gathers [n] bytes of each rank → [ranks, n], equal on all. Collective over these ranks.
  std::function<Tensor(const Tensor& bytes)> gather;
};

/// Returns the share of this rank over a communicator whose order is the group's and which must outlive the result.
GroupShare share_of(comm::Communicator& ranks);

/// Rewrites this rank's choices as balance_group would with the whole group's. Every rank computes the whole result.
/// Collective over the group's ranks: one all-gather of 4 bytes for each choice (8 for the capacity's order by score).
/// kForcedUniform does not communicate, as its pattern follows a token's position, nor does kNone.
/// @param ids_TK     int64, contiguous, this rank's, best first; rewritten.
/// @param scores_TK  fp32, of the choices; needed only for the capacity's order by score.
/// @return the counts of this rank's choices.
BalanceCounts balance_share(const BalanceOptions& options, const GroupShare& share, const Tensor& ids_TK,
                            const Tensor& scores_TK, int64_t num_experts);

}  // namespace athanor::moe
