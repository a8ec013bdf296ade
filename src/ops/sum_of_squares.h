#pragma once
// Sums of squares of flat memory, for norms.

#include <span>

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns Σ x² over tensors (fp32, one dim, contiguous, on one device), fp64 without dims, where they are. On the host
/// the sums of blocks of fixed size are added in order, so that the number of threads does not change the bits. The
/// host does not wait for a device.
Tensor sum_of_squares(std::span<const Tensor> parts);
inline Tensor sum_of_squares(const Tensor& x) { return sum_of_squares({&x, 1}); }

/// Returns the root of fp64 without dims, where it is: correctly rounded on the host, where libtorch's is that of a
/// library which may be off by one unit.
Tensor square_root(const Tensor& x);

/// Returns the sum of fp64 [rows, columns]: on the host each row's, from the first to the last; on a device in its own
/// order.
Tensor sum_by_rows(const Tensor& numbers);

}  // namespace athanor::ops
