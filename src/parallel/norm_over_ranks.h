#pragma once
// RMSNorm of queries and of keys over their whole projections (OLMoE), when the heads of a token are spread over the
// ranks of a tensor group.

#include "ops/norm.h"
#include "parallel/tensor_parallel.h"

namespace athanor::inline parallel {

struct QueryKey {
  Tensor q, k;  ///< [..., width of q] and [..., width of k], with one row for each token
};

/// Normalises the rows of x.q and x.k and multiplies them with the weights. Each rank has some columns of every row:
/// those of its heads, in q as many on every rank, and in k as well. The mean of squares is over all ranks' columns. A
/// key head that several ranks hold is counted once for each of them, both in the sum of squares and in the number of
/// columns. So the mean is that of the whole row. In backward the gradients of such a head, in x.k and in the weight,
/// are partial sums, one on each rank that holds it (GroupKind::kKeyValue); all other gradients are whole. Collective:
/// forward and backward each all-reduce two fp32 values for each token.
/// @param q_weight, k_weight  [width], the rank's columns.
/// @param ranks  GroupKind::kTensor; must outlive backward.
QueryKey rms_norm_over_ranks(const QueryKey& x, const Weight& q_weight, const Weight& k_weight,
                             const ops::RmsForm& form, comm::Communicator& ranks);

}  // namespace athanor::inline parallel
