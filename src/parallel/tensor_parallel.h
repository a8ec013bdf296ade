#pragma once
// Tensor parallelism: the ranks of a tensor group share each matrix, and have the same tokens. A column-parallel
// product gives each rank its own columns; a row-parallel product gives each rank a partial sum. This header has the
// functions that enter and leave such a region, forward and backward. With sequence parallelism the tokens between
// regions are shared too: rank r of n holds tokens [r·N/n, (r+1)·N/n) of a microbatch's N = B·T, as [1, N/n, D].
//
// All functions are collective over the group, in forward and backward, and the identity for a group of one.
// Source: Megatron-LM (Shoeybi et al. 2019, §3; Korthikanti et al. 2022, §4.2).

#include "comm/communicator.h"
#include "ops/tensor.h"

namespace athanor {

struct TensorRanks {
  comm::Communicator* group = nullptr;  ///< GroupKind::kTensor; null: one rank
  bool sequence = false;                ///< tokens are shared between the matrices (parallelism.sequence_parallel)

  int size() const { return group ? group->size() : 1; }
  int rank() const { return group ? group->rank() : 0; }
  bool alone() const { return size() == 1; }
  bool shares_tokens() const { return sequence && !alone(); }
};

/// The input of a tensor-parallel region, for both kinds of readers. The two tensors have the same values and differ in
/// backward.
struct TensorParallelInput {
  Tensor replicated;   ///< for readers that every rank has (a router): each rank has the same, whole gradient
  Tensor partitioned;  ///< for matrices that the ranks share: each rank's gradient is a partial sum, and they are added
};

/// x [B, T, D], or the rank's tokens [1, B·T/n, D] under sequence parallelism → [B, T, D]. Forward sends nothing, or
/// all-gathers under sequence parallelism; backward all-reduces, or reduce-scatters, the gradient of `partitioned`.
TensorParallelInput enter_tensor_parallel(const Tensor& x, const TensorRanks& ranks, int64_t batch);

/// y [B, T, D], a partial sum on each rank → the sum, as the rank's tokens under sequence parallelism. Every rank's
/// result has the bits of the same sum. Forward all-reduces, or reduce-scatters; backward sends nothing, or
/// all-gathers.
/// @param y  is consumed: its memory may become the sum's. Nothing else may read it, and no backward may have saved it.
Tensor leave_tensor_parallel(const Tensor& y, const TensorRanks& ranks);

/// Returns x, a value that is equal on all ranks and that each uses for its part: backward all-reduces its gradient.
Tensor share_gradient(const Tensor& x, const TensorRanks& ranks);

/// Returns, without autograd, the tokens that enter_tensor_parallel gives to its readers. Collective under sequence
/// parallelism; otherwise it returns x.
Tensor gather_tokens(const Tensor& x, const TensorRanks& ranks, int64_t batch);

}  // namespace athanor
