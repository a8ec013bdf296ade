#pragma once
// x · scale + bias along rows: the biases of linear layers, and the parameters of LayerNorm.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Computes y = x · scale + bias for `rows` rows of `width`, in fp32, rounded once. Without a scale (null) y = x +
/// bias.
template <class T>
void affine_forward(const T* x, const T* scale, const T* bias, T* y, int64_t rows, int64_t width);

/// Adds the rows' gradients of the parameters to dscale [width] and dbias [width], one row after the other, and writes
/// dx = dy · scale. Without a scale (null) x, dx and dscale are not read or written: dx is dy.
template <class T>
void affine_backward(const T* dy, const T* x, const T* scale, T* dx, float* dscale, float* dbias, int64_t rows,
                     int64_t width);

}  // namespace athanor::kernels
