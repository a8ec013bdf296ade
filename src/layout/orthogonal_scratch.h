#pragma once
// The memory that Newton and Schulz's iteration takes for a time (ops/newton_schulz.h), in addition to its matrices.

#include <cstdint>

namespace athanor::inline layout {

/// Which iteration: the type of its products, and who multiplies.
struct Orthogonalizer {
  bool bf16 = true;  ///< optimizer.newton_schulz_dtype; else fp32
  bool on_device = false;
};

/// Returns the bytes that ops::orthogonalize takes for a stack of `batch` matrices. On a CPU what the products
/// themselves need (layout/product_scratch.h) is not counted.
double orthogonal_scratch(int64_t batch, int64_t rows, int64_t columns, Orthogonalizer how);

}  // namespace athanor::inline layout
