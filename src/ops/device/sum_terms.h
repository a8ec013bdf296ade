#pragma once
// Sums of terms that ranks have sent, along the tree over ranks (comm/communicator.h), on any device.

#include <functional>

#include "ops/tensor.h"

namespace athanor::ops::device {

/// Returns the sum of term(0), …, term(n − 1) along the tree, in torch ops and in the type of the terms.
Tensor tree_sum(int64_t n, const std::function<Tensor(int64_t index)>& term);

/// Sets `out` to the tree sums of terms[0], terms[1], …: terms of 16 and 32 bits are added in fp32, others in their own
/// type, and each sum is rounded once. Both are contiguous; `out` must not overlap `terms`.
/// @param terms  [n, R, ...]
/// @param out    [T, ...], T ≤ R: the sums of the first rows.
void sum_terms(const Tensor& terms, const Tensor& out);

namespace without_kernels {
void sum_terms(const Tensor& terms, const Tensor& out);
}

}  // namespace athanor::ops::device
