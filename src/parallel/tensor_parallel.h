#pragma once
// Tensor parallelism: the ranks of a tensor group share each matrix, and have the same tokens. What a column-parallel
// product gives is a rank's own; what a row-parallel one gives is its part of a sum. Here are the ways in and out,
// for both directions. With sequence parallelism the tokens between are shared too: rank r of n holds tokens
// [r·N/n, (r+1)·N/n) of a microbatch's N = B·T, as [1, N/n, D].
//
// All are collective over the group, in forward and backward, and nothing but the identity for a group of one.
// Source: Megatron-LM (Shoeybi et al. 2019, §3; Korthikanti et al. 2022, §4.2).

#include "comm/communicator.h"
#include "ops/tensor.h"

namespace athanor {

struct TensorRanks {
  comm::Communicator* group = nullptr;  ///< GroupKind::kTensor; null: alone
  bool sequence = false;                ///< tokens are shared between the matrices (parallelism.sequence_parallel)

  int size() const { return group ? group->size() : 1; }
  int rank() const { return group ? group->rank() : 0; }
  bool alone() const { return size() == 1; }
  bool shares_tokens() const { return sequence && !alone(); }
};

/// One input for both kinds of readers.
struct Entered {
  Tensor whole;  ///< read alike by every rank (a router): its gradient is the same, and whole, on each
  Tensor split;  ///< read by matrices that are shared: its gradient is a part on each, and is added up
};

/// x [B, T, D], or under sequence parallelism the rank's tokens [1, B·T/n, D] → [B, T, D].
/// Forward sends nothing, or all-gathers; backward all-reduces, or reduce-scatters, the gradient of `split`.
Entered enter_tensor_parallel(const Tensor& x, const TensorRanks& ranks, int64_t batch);

/// y [B, T, D], a part of a sum on each rank → the sum, as the rank's tokens under sequence parallelism. Every rank
/// gets the same bits. Forward all-reduces, or reduce-scatters; backward sends nothing, or all-gathers.
/// @param y  is spent: its memory may become the sum's. Nobody else reads it, and no backward has saved it.
Tensor leave_tensor_parallel(const Tensor& y, const TensorRanks& ranks);

/// A value that all ranks have alike and each uses for its part: backward all-reduces its gradient.
Tensor share_gradient(const Tensor& x, const TensorRanks& ranks);

/// Without autograd: what enter_tensor_parallel reads. Collective under sequence parallelism; otherwise x.
Tensor gather_tokens(const Tensor& x, const TensorRanks& ranks, int64_t batch);

}  // namespace athanor
