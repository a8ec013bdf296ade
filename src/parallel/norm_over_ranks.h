#pragma once
// RMSNorm of queries and of keys over their whole projections (OLMoE), where the ranks of a tensor group have a token's
// heads among them.

#include "parallel/tensor_parallel.h"

namespace athanor {

struct QueryKey {
  Tensor q, k;
};

/// Each rank has its columns of every row of x.q and x.k [..., width]; the mean of squares is over all ranks' columns,
/// of which all have as many. A key head that several ranks hold counts as often in sum and in number, so the mean is
/// the whole's; in backward such a rank's gradient is its part of a sum (GroupKind::kKeyValue), for x and for the
/// weight. Collective: forward and backward all-reduce two fp32 values for each token.
/// @param q_weight, k_weight  the rank's columns.
QueryKey rms_norm_over_ranks(const QueryKey& x, const Weight& q_weight, const Weight& k_weight, double eps,
                             comm::Communicator& ranks);

}  // namespace athanor
