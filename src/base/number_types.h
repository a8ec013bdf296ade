#pragma once
// The number types that training computes in: their names and sizes, and the machine's support for bfloat16.

#include <cstdint>
#include <filesystem>
#include <string>

namespace athanor {

enum class NumberType { kFloat32, kBFloat16 };

/// Returns "bfloat16" for "bf16", "float32" for "fp32", and any other name unchanged.
std::string canonical_type_name(const std::string& name);
/// Returns the type with one of these names. @throws ConfigError for any other name, starting with `what`.
NumberType number_type(const std::string& name, const std::string& what = "the number type");
/// Returns "float32" or "bfloat16".
const char* name_of(NumberType type);
/// Returns the bytes of a number.
constexpr int64_t bytes_of(NumberType type) { return type == NumberType::kFloat32 ? 4 : 2; }

/// Returns true if this machine's CPU has instructions to multiply bfloat16 (AVX512-BF16, AMX-BF16, Arm's BF16) and the
/// kernel permits them. Without them bf16 is emulated, and slower than fp32. ATHANOR_FAST_BF16 = 0 or 1 overrides the
/// result, so that both can be tried on one machine.
bool has_fast_bf16(const std::filesystem::path& cpuinfo = "/proc/cpuinfo");

}  // namespace athanor
