#pragma once
// Tensor parallelism: the ranks of a tensor group share each matrix, and have the same tokens. A column-parallel
// product gives each rank its own columns; a row-parallel product gives each rank a partial sum. This header has the
// functions that enter and leave such a region, forward and backward. With sequence parallelism the tokens between
// regions are shared too: of a microbatch's B·T tokens, one sequence after the other, rank r of n holds those from
// r·B·T/n to (r+1)·B·T/n, as [1, B·T/n, D]. (B sequences of T tokens each; D is the hidden size.)
//
// All functions are collective over the group, in forward and backward, and the identity for a group of one. They wait
// for what they send.
// Source: Megatron-LM (Shoeybi et al. 2019, §3; Korthikanti et al. 2022, §4.2).

#include "comm/communicator.h"
#include "ops/tensor.h"

namespace athanor::inline parallel {

struct TensorRanks {
  comm::Communicator* group = nullptr;  ///< GroupKind::kTensor; null: one rank
  bool sequence = false;                ///< tokens are shared between regions (parallelism.sequence_parallel)

  int size() const { return group ? group->size() : 1; }
  int rank() const { return group ? group->rank() : 0; }
  bool alone() const { return size() == 1; }
  bool shares_tokens() const { return sequence && !alone(); }
};

/// The input of a tensor-parallel region, for both kinds of readers. The two tensors have the same values and differ in
/// backward: the gradient of x is the sum over ranks of that of `partitioned`, plus this rank's of `replicated`.
struct TensorParallelInput {
  Tensor replicated;   ///< for readers that every rank has (a router): each rank has the same, whole gradient
  Tensor partitioned;  ///< for matrices that the ranks share: each rank's gradient is a partial sum
};

/// x [B, T, D], or the rank's tokens [1, B·T/n, D] under sequence parallelism → [B, T, D]. Forward sends nothing, or
/// all-gathers under sequence parallelism. Backward all-reduces, or reduce-scatters, the gradient of `partitioned`;
/// that of `replicated` is not sent (under sequence parallelism the rank takes its tokens of it).
/// @param batch  B, which a rank's tokens do not show; read only under sequence parallelism.
TensorParallelInput enter_tensor_parallel(const Tensor& x, const TensorRanks& ranks, int64_t batch);

/// y [B, T, D], a partial sum on each rank → the sum, as the rank's tokens under sequence parallelism. Every rank's
/// result has the bits of the same sum. Forward all-reduces, or reduce-scatters; backward sends nothing, or
/// all-gathers.
/// @param y  is consumed: its memory may become the sum's. Nothing else may read it, and no backward may have saved it.
Tensor leave_tensor_parallel(const Tensor& y, const TensorRanks& ranks);

/// Returns x, a value that is equal on all ranks and that each rank uses for its part of a matrix. So the gradient that
/// a rank has of it is a partial sum: backward replaces it with the sum over ranks, by an all-reduce.
Tensor sum_gradient(const Tensor& x, const TensorRanks& ranks);

/// Returns, without autograd, the tokens [B, T, D] that enter_tensor_parallel gives to its readers. Without sequence
/// parallelism it returns x and sends nothing.
/// @param batch  as in enter_tensor_parallel.
Tensor gather_tokens(const Tensor& x, const TensorRanks& ranks, int64_t batch);

}  // namespace athanor::inline parallel
