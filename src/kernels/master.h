#pragma once
// The fp32 master of a bf16 weight, kept as that weight and the master's 16 lower bits: four bytes for both.
//
// The weight is the master rounded to nearest, ties to even. It is the master's upper half, or that plus one if the
// lower half rounded up: low > 0x8000, or low == 0x8000 under an odd upper half. From the weight and the lower half,
// the second case cannot be told from a tie under an even upper half, which rounded down. Therefore it is avoided: such
// a master (one of 2^17) is moved away from zero by one ulp of fp32 when it is stored, which does not change its bf16
// rounding.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Returns the value that a master is stored as. Storing that value again changes nothing; a NaN stays a NaN.
ATHANOR_INLINE float storable_master(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits & 0x1FFFF) == 0x18000 ? bits | 1 : bits);
}

/// Stores x: sets `weight` and `low` to the two parts of storable_master(x).
ATHANOR_INLINE void split_master(float x, Bf16& weight, uint16_t& low) {
  const float stored = storable_master(x);
  weight.bits = bf16_from_float(stored);
  low = static_cast<uint16_t>(std::bit_cast<uint32_t>(stored));
}

/// Returns the stored master.
ATHANOR_INLINE float join_master(Bf16 weight, uint16_t low) {
  const uint32_t high = weight.bits - (low > 0x8000 ? 1u : 0u);
  return std::bit_cast<float>(high << 16 | low);
}

}  // namespace athanor::kernels
