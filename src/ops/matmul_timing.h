#pragma once
// How fast this CPU makes the products of a training step on each path: what a choice among them rests on.

#include <vector>

#include "ops/matmul_paths.h"

namespace athanor::ops {

/// The products of one kind that a step makes, forward and backward: at most these, which take some ten milliseconds.
/// Much smaller ones would say nothing of large weights, whose packing and traffic differ.
struct SampleShape {
  int64_t tokens = 512, hidden = 1024;             ///< kDense
  int64_t width = 1024, rows = 64, groups = 8;     ///< kGrouped: of an expert, its tokens, and experts
  int64_t length = 256, heads = 4, head_dim = 64;  ///< kAttention
};

/// A run's own shape where it is smaller than that.
SampleShape sample_shape(int64_t tokens, int64_t hidden, int64_t width, int64_t rows_of_expert, int64_t head_dim,
                         int64_t seq_len);

struct PathRate {
  ProductKind kind;
  MatmulPath path;
  double gflops;  ///< of one thread, by its own processor time: other work on the machine counts little
};

/// Every path of this CPU for each kind; leaves the paths that hold as they are.
std::vector<PathRate> measure_matmul_paths(at::ScalarType type, const std::vector<ProductKind>& kinds,
                                           const SampleShape& shape);

/// The fastest of each kind; the default stays unless another is at least a tenth faster, so that noise chooses
/// nothing.
MatmulPaths::OfType fastest_paths(const std::vector<PathRate>& rates, MatmulPaths::OfType otherwise);

const char* name_of(ProductKind kind);

}  // namespace athanor::ops
