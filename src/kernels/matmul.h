#pragma once
// Matrix products in parts that threads can take in any order: C = A B or C += A B, over tiles (gemm_tile.h).
//
// Nothing is packed ahead. B is packed a strip of columns at a time into a core's second-level cache just before it is
// used, and read from memory once; so is A, unless it can be read where it lies (cpu/matmul_cut.h). What packing costs
// is 1/(2 · rows) of the arithmetic on what was packed, and no second copy of any weight is ever held.

#include <cstdint>
#include <vector>

#include "kernels/element.h"
#include "kernels/matmul_path.h"

namespace athanor::kernels {

/// A matrix [rows, columns] in memory: element (i, j) at data[i · ld + j], or data[j · ld + i] if transposed.
template <class T>
struct Matrix {
  const T* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;
};

/// One product of a group: Σ_f a[f] · b[f] with a [m, k], b [k, n]; every sum over f and k ascending, in fp32.
template <class T>
struct Product {
  int64_t m = 0, n = 0, k = 0;
  struct Factors {
    Matrix<T> a, b;
  };
  Factors first, second = {};  ///< the second is optional
  T* out = nullptr;            ///< [m, n], written, rounded once; or
  float* sum = nullptr;        ///< [m, n] fp32, added to; k in chunks of 1,024 then
  int64_t ld = 0;              ///< of out or sum

  int num_factors() const { return second.a.data ? 2 : 1; }
};

/// Rows [m_begin, m_end) and columns [n_begin, n_end) of product `index`.
struct ProductPart {
  int64_t index, m_begin, m_end, n_begin, n_end;
};

/// Cuts products into parts of about equal work; the cut changes no bits.
template <class T>
std::vector<ProductPart> cut_into_parts(MatmulPath path, const std::vector<Product<T>>& products);

/// Bytes of scratch memory that any part of these products needs, a multiple of 64.
template <class T>
int64_t scratch_bytes(MatmulPath path, const std::vector<Product<T>>& products);

/// Computes products[part.index] within the part.
/// @param path     any but the library's that this CPU has, the same in all three. avx512_bf16 multiplies bf16 in
/// pairs;
///                 the others do one fused multiply-add for each k.
/// @param next     what this thread will probably do next, or null: its B is fetched meanwhile.
/// @param scratch  64-byte aligned, of scratch_bytes(products).
template <class T>
void multiply(MatmulPath path, const std::vector<Product<T>>& products, const ProductPart& part,
              const ProductPart* next, void* scratch);

}  // namespace athanor::kernels
