#pragma once
// Memory for what lives as long as a run and is read from end to end every step: parameters, gradients, moments.

#include "ops/tensor.h"

namespace athanor::ops {

/// A tensor [n] of zeros, from the system directly and on huge pages where it grants them: a pass over gigabytes then
/// looks up one address for 2 MiB instead of 512. Memory is taken when it is first written.
/// @param device  kMeta: a shape without memory. @throws Error if there is not enough.
Tensor flat_zeros(int64_t n, at::ScalarType dtype, c10::Device device = at::kCPU);

}  // namespace athanor::ops
