#pragma once
// The paths by which this program can multiply matrices on a CPU, and those that this CPU supports.
//
// avx512_bf16 multiplies pairs of bf16 in one instruction. avx512 and avx2 widen bf16 to fp32 while they pack, and do
// one fused multiply-add for each k, ascending, so these two give the same bits. For fp32, avx512_bf16 uses the tile of
// avx512.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::kernels {

enum class MatmulPath { kLibrary, kAvx2, kAvx512, kAvx512Bf16 };

/// Returns "library", "avx2", "avx512" or "avx512_bf16"; path_named is the inverse, and returns nothing for other
/// names.
const char* name_of(MatmulPath path);
std::optional<MatmulPath> path_named(std::string_view name);

/// Returns true if this CPU has the path's instructions; kLibrary is always available.
bool has_path(MatmulPath path);

/// Returns the paths that this CPU has, the library first, then from narrow to wide.
const std::vector<MatmulPath>& paths_here();
/// Returns the names as one text, such as "library, avx2".
std::string names_of(const std::vector<MatmulPath>& paths);

/// Returns true if the CPU has separate units for bf16 matrix products (AMX), which only the library uses.
bool has_matrix_units();

/// Returns what this CPU has of the instructions that products use, such as "avx2, avx512, avx512_bf16, AMX".
std::string describe_instructions();

}  // namespace athanor::kernels
