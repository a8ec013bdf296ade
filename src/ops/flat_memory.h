#pragma once
// Memory for data that live as long as a run and are read from end to end every step: parameters, gradients, moments.

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns a tensor [n] of zeros, taken directly from the system, on huge pages if it grants them: a pass over
/// gigabytes then looks up one address for 2 MiB instead of 512. Memory is taken when it is first written. On other
/// devices, and below 2 MiB, it is a usual tensor.
/// @param device  kMeta: a shape without memory.
/// @throws Error with exit_code::kMemory if the system refuses the memory.
Tensor flat_zeros(int64_t n, at::ScalarType dtype, c10::Device device = at::kCPU);

}  // namespace athanor::ops
