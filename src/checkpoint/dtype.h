#pragma once
// Element types as safetensors files name them, shapes with checked element counts, and widening to fp32.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/number_types.h"

namespace athanor::inline checkpoint {

using Shape = std::vector<int64_t>;

enum class Dtype { kBool, kU8, kI8, kF8E4M3, kF8E5M2, kU16, kI16, kF16, kBF16, kU32, kI32, kF32, kU64, kI64, kF64 };

constexpr Dtype dtype_of(NumberType type) { return type == NumberType::kFloat32 ? Dtype::kF32 : Dtype::kBF16; }

/// Returns the type's name: "F32", "BF16", ...
const char* dtype_name(Dtype dtype);
/// Returns none if no type has this name.
std::optional<Dtype> dtype_from_name(std::string_view name);
/// Returns the bytes of one element.
uint64_t dtype_size(Dtype dtype);

/// Returns the product of the dimensions, 1 for a scalar; none if a dimension is negative or the non-zero ones overflow
/// 2^63-1 elements.
std::optional<int64_t> num_elements(std::span<const int64_t> shape);

/// Returns the shape as text: "[16, 128, 256]".
std::string shape_text(std::span<const int64_t> shape);

/// Widens `count` elements at `source` (of any alignment) to fp32. This is exact, except that F64 is rounded.
/// @return false if `dtype` is not one of F32, BF16, F16, F64, F8_E4M3; then nothing is written.
bool widen_to_float(Dtype dtype, const std::byte* source, int64_t count, float* out);

/// Widens a number of the type F16 (IEEE 754 half precision).
float f16_to_float(uint16_t bits);
/// Widens a number of the type F8_E4M3 (OCP's: without infinities, and 0x7F and 0xFF are no numbers).
float f8_e4m3_to_float(uint8_t bits);

}  // namespace athanor::inline checkpoint
