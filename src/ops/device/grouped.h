#pragma once
// Matrix products of groups of rows: by libtorch's CUTLASS kernel for bf16 with dims that are multiples of 8, else by
// our own kernel. The host never reads the offsets, unless libtorch does: before sm_90, its grouped product is a loop.

#include "ops/tensor.h"

namespace athanor::ops::device {

/// Groups are multiples of 8 rows: 16 bytes of bf16, whichever operand's rows the kernel's copies run along.
constexpr int64_t kGroupAlignment = 8;

/// Groups of consecutive rows: e has rows [offsets[e], offsets[e + 1]).
struct Groups {
  Tensor offsets;  ///< int64 [L + 1], on the tensors' device
  Tensor ends;     ///< int32 [L]: the end of each group, as the library takes it

  explicit Groups(const Tensor& of_rows)
      : offsets(of_rows), ends(of_rows.narrow(0, 1, of_rows.numel() - 1).to(at::kInt)) {}
  Groups(const Tensor& of_rows, const Tensor& of_groups) : offsets(of_rows), ends(of_groups) {}
};

/// Returns out[rows of e] = a[rows of e] · b[e], a [R, K], where R is no less than the last offset. Rows after the last
/// group have unspecified values.
/// @param b_LKN  may be a transposed view.
Tensor grouped_matmul(const Tensor& a_RK, const Tensor& b_LKN, const Groups& groups);

/// Adds a[rows of e]ᵀ · b[rows of e] to sum[e] for each group e; sum [L, M, N] fp32. A group without rows leaves its
/// sum exactly as it is.
void add_grouped_outer_product(const Tensor& sum_LMN, const Tensor& a_RM, const Tensor& b_RN, const Groups& groups);

}  // namespace athanor::ops::device
