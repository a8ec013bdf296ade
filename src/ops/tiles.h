#pragma once
// Matrix products on every thread: on tiles of ours (kernels/matmul.h), or by the library where those are not chosen
// (matmul_paths.h).

#include <vector>

#include "kernels/matmul.h"
#include "ops/matmul_paths.h"
#include "ops/tensor.h"

namespace athanor::ops {

/// Whether products of x's type run on tiles here.
bool multiplies_on_tiles(const Tensor& x, ProductKind kind = ProductKind::kDense);

/// All of them. No bits depend on the number of threads.
template <class T>
void multiply(MatmulPath path, const std::vector<kernels::Product<T>>& products);

/// x [T, K] · w [N, K]ᵀ → [T, N], or · w [K, N] if not `transposed`: on any device; by its library where that is no
/// CPU.
Tensor matmul(const Tensor& x, const Tensor& w, bool transposed);
/// The same into `out`.
void matmul_into(const Tensor& out, const Tensor& x, const Tensor& w, bool transposed);

}  // namespace athanor::ops
