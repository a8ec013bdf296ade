#pragma once
// The scratch memory that a matrix product on tiles needs in addition to its operands (kernels/cpu/matmul_cut.h).

namespace athanor {

/// The processor that multiplies.
struct Multiplier {
  int threads = 1;     ///< each has separate scratch memory
  bool widens = true;  ///< bf16 is packed as fp32 (not on avx512_bf16); if the CPU is unknown, the larger is assumed
};

/// Bytes of an element in memory, and as tiles read it.
struct ProductWidths {
  double element = 4, packed = 4;
};

/// A product C [m, n] = Σ A [m, k] B [k, n] over `factors` pairs; or, if `sum`, C += Aᵀ B in fp32, which packs both.
struct ProductShape {
  double m, n, k;
  bool sum = false;
  double factors = 1;
};

/// Returns the scratch bytes for `count` such products computed in one call.
double product_scratch(const ProductShape& shape, const ProductWidths& widths, double threads, double count = 1);

}  // namespace athanor
