#pragma once
// The scratch memory that a matrix product on tiles needs in addition to its operands (kernels/cpu/matmul_cut.h).

namespace athanor::inline layout {

/// The processor that multiplies.
struct Multiplier {
  int threads = 1;     ///< each has separate scratch memory
  bool widens = true;  ///< tiles read bf16 as fp32: true except on the path avx512_bf16; also if the path is unknown
  bool on_device = false;  ///< an accelerator: its libraries multiply, without this scratch memory
};
inline constexpr Multiplier kDeviceMultiplier{.threads = 0, .widens = false, .on_device = true};

/// Bytes of an operand's element in memory, and packed as tiles read it.
struct ProductWidths {
  double element = 4, packed = 4;
};

/// A product C [m, n] = Σ A [m, k] B [k, n], summed over `factors` pairs (A, B). With `sum` it is C += Aᵀ B with C in
/// fp32, as for the gradient of a weight; then A is packed as well as B.
struct ProductShape {
  double m, n, k;
  bool sum = false;
  double factors = 1;
};

/// Returns the scratch bytes for `count` such products computed in one call.
double product_scratch(const ProductShape& shape, const ProductWidths& widths, double threads, double count = 1);

}  // namespace athanor::inline layout
