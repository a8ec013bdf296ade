#pragma once
// RMSNorm of queries and of keys over their whole projections (OLMoE), when the heads of a token are spread over the
// ranks of a tensor group.

#include "parallel/tensor_parallel.h"

namespace athanor {

struct QueryKey {
  Tensor q, k;
};

/// Normalises x.q and x.k [..., width], of which each rank has its columns of every row. The mean of squares is over
/// all ranks' columns; all ranks have the same number. A key head that several ranks hold counts that many times in
/// both the sum and the number, so the mean is that of the whole row. In backward such a rank's gradient is a partial
/// sum (GroupKind::kKeyValue), for x and for the weight. Collective: forward and backward each all-reduce two fp32
/// values for each token.
/// @param q_weight, k_weight  the rank's columns.
QueryKey rms_norm_over_ranks(const QueryKey& x, const Weight& q_weight, const Weight& k_weight, double eps,
                             comm::Communicator& ranks);

}  // namespace athanor
