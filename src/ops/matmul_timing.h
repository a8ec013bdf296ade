#pragma once
// Measures the speed of a training step's products on each path of this CPU, on which the choice of a path rests.

#include <vector>

#include "ops/matmul_paths.h"

namespace athanor::ops {

/// The sizes of the measured products of each kind, forward and backward: at most the defaults, which take some ten
/// milliseconds. Much smaller products would not represent large weights, whose packing and memory traffic differ.
struct SampleShape {
  int64_t tokens = 512, hidden = 1024;  ///< kDense
  /// kGrouped: an expert's width, its tokens, and the number of experts
  int64_t width = 1024, rows = 64, groups = 8;
  int64_t length = 256, heads = 4, head_dim = 64;  ///< kAttention
};

/// Returns the run's own sizes, limited to the defaults.
SampleShape sample_shape(int64_t tokens, int64_t hidden, int64_t width, int64_t rows_of_expert, int64_t head_dim,
                         int64_t seq_len);

struct PathRate {
  ProductKind kind;
  MatmulPath path;
  /// Rate of one thread, by its processor time, so that other work on the machine has little effect.
  double gflops;
};

/// Measures every path of this CPU for each kind. It changes the paths in use meanwhile, so no other product may be in
/// progress, and restores them.
std::vector<PathRate> measure_matmul_paths(at::ScalarType type, const std::vector<ProductKind>& kinds,
                                           const SampleShape& shape);

/// Returns the fastest path of each kind. The path of `otherwise` (the default) stays unless another is at least a
/// tenth faster, so that noise does not choose.
MatmulPaths::OfType fastest_paths(const std::vector<PathRate>& rates, MatmulPaths::OfType otherwise);

const char* name_of(ProductKind kind);

}  // namespace athanor::ops
