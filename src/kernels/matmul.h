#pragma once
// Matrix products C = A B or C += A B on tiles (gemm_tile.h), in parts that threads can take in any order.
//
// Nothing is packed in advance. B is packed one strip of columns at a time into a core's second-level cache just before
// it is used, and is read from memory once. So is A, unless it can be read in place (cpu/matmul_cut.h). Packing costs
// 1/(2 · rows) of the arithmetic on the packed values, and no second copy of any weight is ever held.

#include <cstdint>
#include <vector>

#include "kernels/element.h"
#include "kernels/matmul_path.h"

namespace athanor::kernels {

/// A matrix [rows, columns] in memory: element (i, j) is data[i · ld + j], or data[j · ld + i] if transposed.
template <class T>
struct Matrix {
  const T* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;
};

/// One product of a group: Σ_f a[f] · b[f] with a [m, k] and b [k, n]. Every sum is over ascending f and k, in fp32.
template <class T>
struct Product {
  int64_t m = 0, n = 0, k = 0;
  struct Factors {
    Matrix<T> a, b;
  };
  Factors first, second = {};  ///< the second is optional
  T* out = nullptr;            ///< [m, n]: the result is written here, rounded once; null if `sum` is used
  float* sum = nullptr;        ///< [m, n] fp32: the result is added here, in chunks of 1,024 k; null if `out` is used
  int64_t ld = 0;              ///< leading dimension of out or sum

  int num_factors() const { return second.a.data ? 2 : 1; }
};

/// Rows [m_begin, m_end) and columns [n_begin, n_end) of product `index`.
struct ProductPart {
  int64_t index, m_begin, m_end, n_begin, n_end;
};

/// Cuts products into parts of about equal work. The cut does not change a bit of the results.
template <class T>
std::vector<ProductPart> cut_into_parts(MatmulPath path, const std::vector<Product<T>>& products);

/// Returns the bytes of scratch memory that suffice for any part of these products, a multiple of 64.
template <class T>
int64_t scratch_bytes(MatmulPath path, const std::vector<Product<T>>& products);

/// Computes products[part.index] within the part.
/// @param path     any path of this CPU except kLibrary; it must be the same in all three functions. avx512_bf16
///                 multiplies bf16 in pairs; the others do one fused multiply-add for each k.
/// @param next     the part that this thread will probably compute next, or null; its B is prefetched meanwhile.
/// @param scratch  64-byte aligned, with scratch_bytes(products) bytes.
template <class T>
void multiply(MatmulPath path, const std::vector<Product<T>>& products, const ProductPart& part,
              const ProductPart* next, void* scratch);

}  // namespace athanor::kernels
