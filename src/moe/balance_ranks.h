#pragma once
// Balancing a group whose sequences are spread over ranks, as if one rank had them all.

#include <functional>

#include "moe/balance.h"
#include "ops/tensor.h"

namespace athanor::comm {
class Communicator;
}

namespace athanor::moe {

/// One rank's part of a balance group: `ranks` of them have as many tokens each, in the order of the group.
struct GroupShare {
  int ranks = 1, index = 0;
  /// Collective over these ranks: [n] bytes of each → [ranks, n], the same on all.
  std::function<Tensor(const Tensor& bytes)> gather;
};

/// Over a communicator whose order is the group's; it outlives the answer.
GroupShare share_of(comm::Communicator& ranks);

/// Rewrites this rank's choices as balance_group does with the whole group's. Every rank works that out for itself.
/// Communicates once, one all-gather of 4 bytes for each choice (8 for the capacity's order by score), whatever the
/// numbers of ranks and experts; kForcedUniform not at all, as its pattern follows a token's place.
/// @param ids_TK     int64, contiguous, this rank's, best first; rewritten.
/// @param scores_TK  fp32, of the choices; needed by the capacity's order by score alone.
/// @return what happened to this rank's choices.
BalanceCounts balance_share(const BalanceOptions& options, const GroupShare& share, const Tensor& ids_TK,
                            const Tensor& scores_TK, int64_t num_experts);

}  // namespace athanor::moe
