#include "kernels/matmul_path.h"

#include <array>
#include <cstdint>
#include <utility>

namespace athanor::kernels {
namespace {

constexpr std::array<std::pair<MatmulPath, const char*>, 4> kNames = {{{MatmulPath::kLibrary, "library"},
                                                                       {MatmulPath::kAvx2, "avx2"},
                                                                       {MatmulPath::kAvx512, "avx512"},
                                                                       {MatmulPath::kAvx512Bf16, "avx512_bf16"}}};

// Returns whether the CPU has what the packing and the stores of a path need in addition to its tile.
bool cpu_has(MatmulPath path) {
  if (path == MatmulPath::kLibrary) return true;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  if (path == MatmulPath::kAvx2) return avx2;
  if (path == MatmulPath::kAvx512) return avx512;
  return avx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace

const char* name_of(MatmulPath path) { return kNames[static_cast<size_t>(path)].second; }

std::optional<MatmulPath> path_named(std::string_view name) {
  for (const auto& [path, known] : kNames) {
    if (name == known) return path;
  }
  return std::nullopt;
}

const std::vector<MatmulPath>& paths_here() {
  static const std::vector<MatmulPath> paths = [] {
    std::vector<MatmulPath> here;
    for (const auto& [path, name] : kNames) {
      if (cpu_has(path)) here.push_back(path);
    }
    return here;
  }();
  return paths;
}

bool has_path(MatmulPath path) {
  for (const MatmulPath here : paths_here()) {
    if (here == path) return true;
  }
  return false;
}

std::string names_of(const std::vector<MatmulPath>& paths) {
  std::string names;
  for (const MatmulPath path : paths) names += (names.empty() ? "" : ", ") + std::string(name_of(path));
  return names;
}

bool has_matrix_units() {
#if defined(__x86_64__)
  // CPUID leaf 7 is read directly, since the compiler's own test has no amx-bf16 in GCC 12.
  uint32_t a = 7, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return (d >> 22) & 1;
#else
  return false;
#endif
}

std::string describe_instructions() {
  std::string has = names_of({paths_here().begin() + 1, paths_here().end()});  // every CPU has the library
  if (has_matrix_units()) has += has.empty() ? "AMX" : ", AMX";
  return has.empty() ? "neither avx2 nor avx512" : has;
}

}  // namespace athanor::kernels
