#pragma once
// Parts of matrices in flat memory, for updates that need norms of whole matrices.

#include <cstdint>

namespace athanor::kernels {

/// A part of one matrix. It is contiguous in each memory, and begins at another element there.
struct MatrixPart {
  int64_t begin = 0;        ///< where it begins in weights and gradients
  int64_t size = 0;         ///< number of elements, above 0
  int64_t low_begin = 0;    ///< where it begins in the lower bits of split masters (master.h)
  int64_t state_begin = 0;  ///< where it begins in the optimizer's state
  int64_t matrix = 0;       ///< its number
  int64_t is_counted = 0;   ///< 1: sums over the matrix have these elements; 0: another rank counts them

  bool operator==(const MatrixPart&) const = default;
};

/// Kernels cut a part into runs of this many elements, the last of which may be shorter; each has a sum.
constexpr int64_t kMatrixRun = 8192;

/// Returns the number of runs of a part.
constexpr int64_t matrix_runs(int64_t size) { return (size + kMatrixRun - 1) / kMatrixRun; }

}  // namespace athanor::kernels
