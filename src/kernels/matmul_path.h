#pragma once
// The ways in which this program can multiply matrices on a CPU, and which of them this CPU has.
//
// avx512_bf16 multiplies pairs of bf16 in one instruction. avx512 and avx2 widen bf16 to fp32 while they pack, and do
// one fused multiply-add for each k, ascending: these two give the same bits. fp32 has no narrow form: avx512_bf16
// takes the tile of avx512 for it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::kernels {

enum class MatmulPath { kLibrary, kAvx2, kAvx512, kAvx512Bf16 };

/// "library", "avx2", "avx512", "avx512_bf16".
const char* name_of(MatmulPath path);
std::optional<MatmulPath> path_named(std::string_view name);

/// Whether this CPU has the instructions; the library's is always there.
bool has_path(MatmulPath path);

/// Those this CPU has, the library first, then from narrow to wide.
const std::vector<MatmulPath>& paths_here();
/// "library, avx2".
std::string names_of(const std::vector<MatmulPath>& paths);

/// Whether the CPU multiplies matrices of bf16 in units of their own (AMX), which only the library uses.
bool has_matrix_units();

}  // namespace athanor::kernels
