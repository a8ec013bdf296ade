// cmake/athanor_device.cmake chooses this file if libtorch has CUDA.

#include <c10/cuda/CUDAStream.h>

#include "ops/device/on_stream.h"

namespace athanor::ops::device {
void* current_cuda_stream(const Tensor& x) { return c10::cuda::getCurrentCUDAStream(x.device().index()).stream(); }

bool libtorch_has_cuda() { return true; }
}  // namespace athanor::ops::device
