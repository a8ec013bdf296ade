#pragma once
// Memory beside its operands that a matrix product on tiles needs while it is computed (kernels/cpu/matmul_cut.h).

namespace athanor {

/// Who multiplies.
struct Multiplier {
  int threads = 1;     ///< each has scratch memory of its own
  bool widens = true;  ///< bf16 is packed as fp32; not on avx512_bf16. What does not know the CPU counts on the larger.
};

/// Bytes of an element, as it lies in memory and as tiles read it.
struct ProductWidths {
  double element = 4, packed = 4;
};

/// C [m, n] = A [m, k] B [k, n], for `factors` pairs; or C += Aᵀ B of fp32, which packs both.
struct ProductShape {
  double m, n, k;
  bool sum = false;
  double factors = 1;
};

/// Bytes for `count` such products in one go.
double product_scratch(const ProductShape& shape, const ProductWidths& widths, double threads, double count = 1);

}  // namespace athanor
