#pragma once
// Adds a matmul's result into an fp32 gradient bucket.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Computes sum[i] += x[i] for n elements.
template <class T>
void accumulate(float* sum, const T* x, int64_t n);

}  // namespace athanor::kernels
