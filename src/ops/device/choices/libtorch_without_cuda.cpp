// cmake/athanor_device.cmake chooses this file if libtorch has no CUDA: then no tensor is on a device.

#include "ops/device/cuda_state.h"
#include "ops/device/on_stream.h"

namespace athanor::ops::device {
void* current_cuda_stream(const Tensor&) {
  fail<Error>("bug: a CUDA tensor, but this libtorch has no CUDA; build against one that has (docs/gpu.md)");
}

CudaState find_cuda() { return {}; }
}  // namespace athanor::ops::device
