// cmake/athanor_device.cmake chooses this file if libtorch has CUDA.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/device/cuda_state.h"
#include "ops/device/on_stream.h"

namespace athanor::ops::device {
void* current_cuda_stream(const Tensor& x) { return c10::cuda::getCurrentCUDAStream(x.device().index()).stream(); }

CudaState find_cuda() {
  CudaState state{true, at::detail::getCUDAHooks().versionCUDART(), ""};
  try {
    c10::cuda::device_count_ensure_non_zero();
  } catch (const c10::Error& error) {
    state.why_none = error.what_without_backtrace();
  }
  return state;
}
}  // namespace athanor::ops::device
