#pragma once
// Rotary position embedding on a device, with the bits of kernels/rope.h.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

/// kernels::rope; y may be x.
template <class T>
void rope(const Stream& stream, const T* x, T* y, const float* cos, const float* sin, int64_t tokens, int64_t num_heads,
          int64_t head_dim, float direction);

}  // namespace athanor::kernels::cuda
