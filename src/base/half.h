#pragma once
// bfloat16 numbers as their 16 bits. Conversion from float rounds to nearest, ties to even.

#include <bit>
#include <cstdint>

namespace athanor {

constexpr uint16_t bf16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits >> 16) | 0x40);  // keep a NaN a NaN
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

constexpr float bf16_to_float(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

}  // namespace athanor
