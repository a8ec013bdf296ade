// cmake/athanor_device.cmake chooses this file if the build does not use libtorch's CUDA: then no tensor is on a
// device.

#include "base/build_info.h"
#include "ops/device/cuda_state.h"
#include "ops/device/on_stream.h"
#include "ops/graph.h"

namespace athanor::ops::device {
void* current_cuda_stream(const Tensor&) { fail<Error>("bug: a CUDA tensor, but this build is for CPUs"); }

std::function<void()> record_on_cuda(at::Device, const std::function<void()>&) {
  fail<Error>("bug: a graph on CUDA, but this build is for CPUs");
}

CudaState find_cuda() {
  const std::string& why = build_info().why_no_cuda;
  return {.is_built = false, .version = 0, .why_none = "", .why_not_built = why == "libtorch has no CUDA" ? "" : why};
}
}  // namespace athanor::ops::device
