#pragma once
// RMSNorm on a device, with the residual add before it; kernels/norm.h has the definitions. Sums over a row have a
// team's order (launch.h), so bits differ from those of the CPU.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

/// kernels::rms_norm_forward. With `branch`, it is kernels::add_rms_norm_forward: `sum` = x + branch is written and
/// normed. Otherwise `branch` and `sum` are null.
template <class T>
void rms_norm_forward(const Stream& stream, const T* x, const T* branch, const T* w, T* sum, T* y, float* rstd,
                      int64_t rows, int64_t width, float eps, float offset = 0);

/// The number of rows in one partial sum of the weight's gradient, as in ops/norm.h.
constexpr int64_t kRowsPerPartial = 64;
/// Returns the number of elements that `partials` below must have: [partial sums, width].
inline int64_t norm_partials(int64_t rows, int64_t width) {
  return (rows + kRowsPerPartial - 1) / kRowsPerPartial * width;
}

/// Writes dx, and adds Σ_rows dy · x · rstd into dw [width]: over 64 rows in order, then over those sums in order, as
/// the CPU's op does. `partials` is scratch. With `dsum`, it is kernels::add_rms_norm_backward; otherwise `dsum` is
/// null. dx may be dy.
template <class T>
void rms_norm_backward(const Stream& stream, const T* dsum, const T* dy, const T* x, const T* w, const float* rstd,
                       T* dx, float* dw, float* partials, int64_t rows, int64_t width, float offset = 0);

}  // namespace athanor::kernels::cuda
