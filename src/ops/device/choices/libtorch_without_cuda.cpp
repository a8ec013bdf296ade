// cmake/athanor_device.cmake chooses this file if libtorch has no CUDA: then no tensor is on a device.

#include "ops/device/cuda_state.h"
#include "ops/device/on_stream.h"
#include "ops/graph.h"

namespace athanor::ops::device {
void* current_cuda_stream(const Tensor&) {
  fail<Error>("bug: a CUDA tensor, but this libtorch has no CUDA; build against one that has (docs/gpu.md)");
}

std::function<void()> record_on_cuda(at::Device, const std::function<void()>&) {
  fail<Error>("bug: a graph on CUDA, but this libtorch has no CUDA");
}

CudaState find_cuda() { return {}; }
}  // namespace athanor::ops::device
