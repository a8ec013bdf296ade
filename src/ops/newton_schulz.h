#pragma once
// The nearest semi-orthogonal matrix, approximately, by Newton and Schulz's iteration: what Muon makes of a momentum.
//
// From X = G / ‖G‖, with rows ≤ columns (else of Gᵀ), each iteration is:
//   A = X Xᵀ,   X ← (a I + b A + c A²) X.
// It moves every singular value s to a s + b s³ + c s⁵. Source: Jordan et al. 2024 (Muon), with a, b, c for which five
// iterations bring singular values from 0.002 to 1 near 1 (0.7 to 1.2). A and A² are symmetric: one triangle of each is
// computed.

#include <array>

#include "ops/tensor.h"

namespace athanor::ops {

struct NewtonSchulz {
  int64_t steps = 5;
  std::array<double, 3> coefficients{3.4445, -4.7750, 2.0315};
  at::ScalarType dtype =
      at::kBFloat16;  ///< type of the products, bf16 or fp32; norms are fp64, and sums of products fp32
};

/// Replaces each matrix of a stack [B, rows, columns] (fp32, contiguous). A matrix of zeros stays one. The bits do not
/// depend on threads, nor on the other matrices of the stack. On a device the products are those of libtorch, of which
/// both triangles are computed; the host waits for nothing.
void orthogonalize(const Tensor& stack, const NewtonSchulz& how);

/// Returns the multiplications and additions of one matrix, with one triangle of each symmetric product.
double orthogonalize_flops(int64_t rows, int64_t columns, int64_t steps);

namespace portable {
/// The same in torch ops, on any device.
void orthogonalize(const Tensor& stack, const NewtonSchulz& how);
}  // namespace portable

}  // namespace athanor::ops
