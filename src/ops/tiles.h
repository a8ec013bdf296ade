#pragma once
// Matrix products on every thread: on our tiles (kernels/matmul.h), or by the library if that is the path chosen
// (matmul_paths.h).

#include <vector>

#include "kernels/matmul.h"
#include "ops/matmul_paths.h"
#include "ops/tensor.h"

namespace athanor::ops {

/// True if products of x's type run on tiles in this process.
bool multiplies_on_tiles(const Tensor& x, ProductKind kind = ProductKind::kDense);

/// True if the last bits of a row of a product with x may depend on how many rows there are: where the CPU's library
/// multiplies.
bool product_bits_follow_rows(const Tensor& x);

/// Computes all products on any path. No bits depend on the number of threads.
/// @param like  one of the factors, for its device.
template <class T>
void multiply(const Tensor& like, MatmulPath path, const std::vector<kernels::Product<T>>& products);

/// Returns x [T, K] · w [N, K]ᵀ → [T, N], or · w [K, N] if not `transposed`. Works on any device, by the device's
/// library if that is not the CPU.
Tensor matmul(const Tensor& x, const Tensor& w, bool transposed);
/// Computes matmul into `out`.
void matmul_into(const Tensor& out, const Tensor& x, const Tensor& w, bool transposed);

}  // namespace athanor::ops
