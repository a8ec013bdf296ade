#pragma once
// SwiGLU (Shazeer 2020): silu(gate) · up.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Computes out[i] = gate[i] · σ(gate[i]) · up[i] for n elements.
template <class T>
void swiglu_forward(const T* gate, const T* up, T* out, int64_t n);

/// Computes dgate and dup; these may be the same memory as gate and up.
template <class T>
void swiglu_backward(const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n);

}  // namespace athanor::kernels
