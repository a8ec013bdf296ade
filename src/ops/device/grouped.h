#pragma once
// Matrix products of groups of rows: by libtorch's CUTLASS kernel for bf16 with dims that are multiples of 8, else by
// our own kernel. The host never reads the offsets, unless libtorch does: before sm_90, its grouped product is a loop.

#include "ops/tensor.h"

namespace athanor::ops::device {

/// Groups are multiples of 8 rows: 16 bytes of bf16, whichever operand's rows the kernel's copies run along.
constexpr int64_t kGroupAlignment = 8;

/// Returns out[rows of e] = a[rows of e] · b[e]; a group has rows [offsets[e], offsets[e + 1]) of [R, K], with offsets
/// int64 [L + 1] on the tensors' device, and R no less than the last one. Rows after the last group have unspecified
/// values.
/// @param b_LKN  may be a transposed view.
Tensor grouped_matmul(const Tensor& a_RK, const Tensor& b_LKN, const Tensor& offsets);

/// Adds a[rows of e]ᵀ · b[rows of e] to sum[e] for each group e; sum [L, M, N] fp32. A group without rows leaves its
/// sum exactly as it is.
void add_grouped_outer_product(const Tensor& sum_LMN, const Tensor& a_RM, const Tensor& b_RN, const Tensor& offsets);

}  // namespace athanor::ops::device
