#pragma once
// LayerNorm without parameters on a device, with the residual add before it; kernels/norm.h has the definitions. Sums
// over a row have a team's order (launch.h), so bits differ from those of the CPU.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

/// kernels::layer_norm_forward. With `branch`, it is kernels::add_layer_norm_forward: `sum` = x + branch is written and
/// normed. Otherwise `branch` and `sum` are null.
template <class T>
void layer_norm_forward(const Stream& stream, const T* x, const T* branch, T* sum, T* y, float* mean, float* rstd,
                        int64_t rows, int64_t width, float eps);

/// kernels::layer_norm_backward. With `dsum`, it is kernels::add_layer_norm_backward; otherwise `dsum` is null. dx may
/// be dy.
template <class T>
void layer_norm_backward(const Stream& stream, const T* dsum, const T* dy, const T* x, const float* mean,
                         const float* rstd, T* dx, int64_t rows, int64_t width);

}  // namespace athanor::kernels::cuda
