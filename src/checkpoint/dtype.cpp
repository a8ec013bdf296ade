#include "checkpoint/dtype.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace athanor::inline checkpoint {
namespace {

struct DtypeRow {
  Dtype dtype;
  const char* name;
  uint64_t size;
};

constexpr std::array kDtypes = {
    DtypeRow{Dtype::kBool, "BOOL", 1},      DtypeRow{Dtype::kU8, "U8", 1},          DtypeRow{Dtype::kI8, "I8", 1},
    DtypeRow{Dtype::kF8E4M3, "F8_E4M3", 1}, DtypeRow{Dtype::kF8E5M2, "F8_E5M2", 1}, DtypeRow{Dtype::kU16, "U16", 2},
    DtypeRow{Dtype::kI16, "I16", 2},        DtypeRow{Dtype::kF16, "F16", 2},        DtypeRow{Dtype::kBF16, "BF16", 2},
    DtypeRow{Dtype::kU32, "U32", 4},        DtypeRow{Dtype::kI32, "I32", 4},        DtypeRow{Dtype::kF32, "F32", 4},
    DtypeRow{Dtype::kU64, "U64", 8},        DtypeRow{Dtype::kI64, "I64", 8},        DtypeRow{Dtype::kF64, "F64", 8},
};

/// memcpy is used since a file gives no alignment; compilers turn it into an unaligned load.
template <class T, class Widen>
void widen_each(const std::byte* source, int64_t count, float* out, Widen widen) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, source + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    out[i] = widen(value);
  }
}

}  // namespace

const char* dtype_name(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

uint64_t dtype_size(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].size; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const auto& row : kDtypes) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<int64_t> num_elements(std::span<const int64_t> shape) {
  int64_t product = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
    } else if (product > std::numeric_limits<int64_t>::max() / size) {
      return std::nullopt;
    } else {
      product *= size;
    }
  }
  return empty ? 0 : product;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F;
  const uint32_t fraction = bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000 | (fraction << 13));
  if (exponent > 0) return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // zero and subnormals: multiples of 2^-24
  return sign ? -magnitude : magnitude;
}

float f8_e4m3_to_float(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24;
  const uint32_t exponent = (bits >> 3) & 0xF, fraction = bits & 0x7;
  if ((bits & 0x7F) == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000);
  if (exponent > 0) return std::bit_cast<float>(sign | ((exponent + 127 - 7) << 23) | (fraction << 20));
  const float magnitude = static_cast<float>(fraction) * 0x1p-9f;  // zero and subnormals: multiples of 2^-9
  return sign ? -magnitude : magnitude;
}

bool widen_to_float(Dtype dtype, const std::byte* source, int64_t count, float* out) {
  switch (dtype) {
    case Dtype::kF32:
      if (count > 0) std::memcpy(out, source, static_cast<size_t>(count) * sizeof(float));
      return true;
    case Dtype::kBF16: widen_each<uint16_t>(source, count, out, bf16_to_float); return true;
    case Dtype::kF16: widen_each<uint16_t>(source, count, out, f16_to_float); return true;
    case Dtype::kF8E4M3: widen_each<uint8_t>(source, count, out, f8_e4m3_to_float); return true;
    case Dtype::kF64:
      widen_each<double>(source, count, out, [](double x) { return static_cast<float>(x); });
      return true;
    default: return false;
  }
}

}  // namespace athanor::inline checkpoint
