#pragma once
// Ops of single elements on a device: SwiGLU, GELU, GEGLU, soft caps and the rotary position embedding, with the
// bits of kernels/swiglu.h, kernels/gelu.h, kernels/soft_cap.h and kernels/rope.h.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"
#include "kernels/gelu.h"

namespace athanor::kernels::cuda {

/// kernels::swiglu_forward.
template <class T>
void swiglu_forward(const Stream& stream, const T* gate, const T* up, T* out, int64_t n);

/// kernels::swiglu_backward; dgate and dup may overwrite gate and up.
template <class T>
void swiglu_backward(const Stream& stream, const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n);

/// kernels::gelu_forward.
template <class T>
void gelu_forward(const Stream& stream, GeluForm form, const T* x, T* y, int64_t n);

/// kernels::gelu_backward; dx may be dy or x.
template <class T>
void gelu_backward(const Stream& stream, GeluForm form, const T* dy, const T* x, T* dx, int64_t n);

/// kernels::geglu_forward.
template <class T>
void geglu_forward(const Stream& stream, const T* gate, const T* up, T* out, int64_t n);

/// kernels::geglu_backward; dgate and dup may overwrite gate and up.
template <class T>
void geglu_backward(const Stream& stream, const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n);

/// kernels::soft_cap_forward; y may be x.
template <class T>
void soft_cap_forward(const Stream& stream, const T* x, T* y, int64_t n, float cap);

/// kernels::soft_cap_backward; dx may be dy or x.
template <class T>
void soft_cap_backward(const Stream& stream, const T* dy, const T* x, T* dx, int64_t n, float cap);

/// kernels::rope; y may be x.
template <class T>
void rope(const Stream& stream, const T* x, T* y, const float* cos, const float* sin, int64_t tokens, int64_t num_heads,
          int64_t head_dim, float direction);

}  // namespace athanor::kernels::cuda
