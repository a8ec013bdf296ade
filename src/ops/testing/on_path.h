#pragma once
// Computes all products on one path during its lifetime.

#include "ops/matmul_paths.h"

namespace athanor::ops::test {

class OnPath {
 public:
  explicit OnPath(MatmulPath path) { set_matmul_paths(all_on(path)); }
  ~OnPath() { set_matmul_paths(before_); }
  OnPath(const OnPath&) = delete;
  OnPath& operator=(const OnPath&) = delete;

 private:
  MatmulPaths before_ = matmul_paths();
};

/// Returns a path that packs bf16 as fp32, and one that does not, if this CPU has them: tiles of the two kinds need
/// different sizes of scratch memory.
inline std::vector<MatmulPath> tile_paths() {
  using enum MatmulPath;
  std::vector<MatmulPath> paths;
  if (kernels::has_path(kAvx2)) paths.push_back(kernels::has_path(kAvx512) ? kAvx512 : kAvx2);
  if (kernels::has_path(kAvx512Bf16)) paths.push_back(kAvx512Bf16);
  return paths;
}

}  // namespace athanor::ops::test
