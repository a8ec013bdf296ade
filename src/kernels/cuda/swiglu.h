#pragma once
// SwiGLU on a device, with the bits of kernels/swiglu.h.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

/// kernels::swiglu_forward.
template <class T>
void swiglu_forward(const Stream& stream, const T* gate, const T* up, T* out, int64_t n);

/// kernels::swiglu_backward; dgate and dup may overwrite gate and up.
template <class T>
void swiglu_backward(const Stream& stream, const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n);

}  // namespace athanor::kernels::cuda
