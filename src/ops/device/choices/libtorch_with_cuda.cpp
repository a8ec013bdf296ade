// cmake/athanor_device.cmake chooses this file if libtorch has CUDA.

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/device/cuda_state.h"
#include "ops/device/on_stream.h"
#include "ops/graph.h"

namespace athanor::ops::device {
void* current_cuda_stream(const Tensor& x) { return c10::cuda::getCurrentCUDAStream(x.device().index()).stream(); }

std::function<void()> record_on_cuda(at::Device device, const std::function<void()>& body) {
  // The default stream cannot be recorded. What was queued there comes first.
  const auto outside = c10::cuda::getCurrentCUDAStream(device.index());
  const auto side = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
  const auto pool = at::cuda::graph_pool_handle();
  auto graph = std::make_shared<at::cuda::CUDAGraph>();
  // The graph has its own memory: what steps without it have left behind would stay unused next to it.
  c10::cuda::CUDACachingAllocator::emptyCache();
  {
    const c10::cuda::CUDAStreamGuard on_side(side);
    c10::Event before(c10::DeviceType::CUDA);
    before.record(outside);
    before.block(side);
    // The threads that load data and save checkpoints may use the device meanwhile.
    graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      try {
        graph->capture_end();
      } catch (const std::exception&) {
        // CUDA has ended a recording that was spoilt, and libtorch has not ended what it does for one. The body's error
        // is the one to report.
        c10::cuda::CUDACachingAllocator::endAllocateToPool(device.index(), pool);
        c10::cuda::CUDACachingAllocator::releasePool(device.index(), pool);
      }
      throw;
    }
    graph->capture_end();
  }
  return [graph] { graph->replay(); };
}

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
