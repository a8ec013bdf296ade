#pragma once
// One matrix product for each expert, in one call: all threads share all parts of all products. The products run on our
// tiles, or by the library (tiles.h). Source: Optimus §3.1, stage 4.

#include <vector>

#include "ops/tensor.h"

namespace athanor::ops {

/// The rows of a tensor [R, …] that belong to each of L groups: [offsets[e], offsets[e + 1]).
using GroupOffsets = std::vector<int64_t>;

/// The product out[rows of e] = a[rows of e] · b[e], or · b[e]ᵀ, for each group e. If a second pair is given, its
/// product is added: on tiles before the result is rounded, by the library after the first product was rounded.
struct GroupedProduct {
  Tensor a_RK, b_LKN;  ///< b [L, N, K] if b_transposed
  bool b_transposed = false;
  Tensor out_RN;
  Tensor second_a_RK = {}, second_b_LKN = {};
};

/// Computes the products. All tensors are in the compute type, contiguous, but for what lies between the matrices of b.
/// On tiles, every result is one sum over
/// ascending k. No bits depend on threads on any path.
void grouped_matmul(const GroupOffsets& offsets, const std::vector<GroupedProduct>& products);

/// The update sum[e] += a[rows of e]ᵀ · b[rows of e] for each group e; sum [L, M, N] fp32, whose matrices are
/// contiguous. A group without rows leaves its sum as it is.
struct GroupedOuterProduct {
  Tensor a_RM, b_RN, sum_LMN;
};
void grouped_outer_product(const GroupOffsets& offsets, const std::vector<GroupedOuterProduct>& products);

}  // namespace athanor::ops
