// cmake/athanor_device.cmake chooses this file if libtorch has no CUDA: then no tensor is on a device.

#include "ops/device/on_stream.h"
#include "ops/graph.h"

namespace athanor::ops::device {
void* current_cuda_stream(const Tensor&) {
  fail<Error>("bug: a CUDA tensor, but this libtorch has no CUDA; build against one that has (docs/gpu.md)");
}

bool libtorch_has_cuda() { return false; }

std::function<void()> record_on_cuda(at::Device, const std::function<void()>&) {
  fail<Error>("bug: a graph on CUDA, but this libtorch has no CUDA");
}
}  // namespace athanor::ops::device
