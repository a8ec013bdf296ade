#pragma once
// The types of numbers that training computes in: what they are called, and which this machine is fast in.

#include <filesystem>
#include <string>

namespace athanor {

/// "bf16" → "bfloat16", "fp32" → "float32"; any other name as it is.
std::string canonical_type_name(const std::string& name);

/// Whether this machine's CPU multiplies bfloat16 by instructions of its own (AVX512-BF16, AMX-BF16, Arm's BF16), as
/// far as the kernel lets it. Without them bf16 is emulated, and slower than fp32. ATHANOR_FAST_BF16 = 0 or 1 answers
/// instead, so that one machine can try both.
bool has_fast_bf16(const std::filesystem::path& cpuinfo = "/proc/cpuinfo");

}  // namespace athanor
