#pragma once
// Matrix products on tiles of ours (kernels/matmul.h), on every thread.
//
// They run on CPUs with AVX-512 (fp32) and AVX-512 BF16 (bf16) but without AMX; elsewhere the library multiplies.
// ATHANOR_MATMUL=library asks for the library everywhere: the other form is each one's oracle.

#include <vector>

#include "kernels/matmul.h"
#include "ops/tensor.h"

namespace athanor::ops {

/// Whether products of x's type run on tiles here.
bool multiplies_on_tiles(const Tensor& x);

/// Only where multiplies_on_tiles. No bits depend on the number of threads.
template <class T>
void multiply_on_tiles(const std::vector<kernels::Product<T>>& products);

/// x [T, K] · w [N, K]ᵀ → [T, N], or · w [K, N] if not `transposed`: the library's mm where tiles are not.
Tensor matmul(const Tensor& x, const Tensor& w, bool transposed);
/// The same into `out`.
void matmul_into(const Tensor& out, const Tensor& x, const Tensor& w, bool transposed);

}  // namespace athanor::ops
