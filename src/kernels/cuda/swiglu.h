#pragma once
// SwiGLU on a device, alone and times a router's probability. Bits of kernels/swiglu.h where it has the same function.

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

/// out[r] = weights[choice_of_row[r]] · silu(gate[r]) · up[r], rounded once; zeros for padding (−1). All [rows, width].
template <class T>
void weighted_swiglu_forward(const Stream& stream, const T* gate, const T* up, const float* weights,
                             const int64_t* choice_of_row, T* out, int64_t rows, int64_t width);

/// Its backward: dweights[c] = ⟨silu(gate[r]) · up[r], dout[r]⟩ of the activation before it is rounded, and dgate, dup
/// of weights[c] · dout[r], each rounded once; zeros for padding. dgate and dup may overwrite gate and up.
template <class T>
void weighted_swiglu_backward(const Stream& stream, const T* dout, const T* gate, const T* up, const float* weights,
                              const int64_t* choice_of_row, T* dgate, T* dup, float* dweights, int64_t rows,
                              int64_t width);

}  // namespace athanor::kernels::cuda
