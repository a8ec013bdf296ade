// cmake/athanor_device.cmake chooses this file if the build uses libtorch's CUDA.

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <memory>

#include "ops/device/cuda_state.h"
#include "ops/device/on_stream.h"
#include "ops/graph.h"

namespace athanor::ops::device {
namespace {

// CUDA ends a recording that was spoilt, but libtorch does not end what its two allocators do for one: they would still
// ask the graph, which is gone by then, if new memory is to be in its pool.
void leave_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  try {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool);
    c10::cuda::CUDACachingAllocator::releasePool(device, pool);
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool);
    at::getHostAllocator(at::kCUDA)->release_pool(pool);
  } catch (const c10::Error&) {
    // They have ended it: the recording failed later, and the graph's destructor releases the pool.
  }
}

}  // namespace

void* current_cuda_stream(const Tensor& x) { return c10::cuda::getCurrentCUDAStream(x.device().index()).stream(); }

std::function<void()> record_on_cuda(at::Device device, const std::function<void()>& body) {
  // The default stream cannot be recorded. What was queued there comes first.
  const auto outside = c10::cuda::getCurrentCUDAStream(device.index());
  const auto side = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
  const auto pool = at::cuda::graph_pool_handle();
  auto graph = std::make_shared<at::cuda::CUDAGraph>();
  {
    const c10::cuda::CUDAStreamGuard on_side(side);
    c10::Event before(c10::DeviceType::CUDA);
    before.record(outside);
    before.block(side);
    // Only calls of this thread may spoil the recording: libtorch runs backward on its own thread.
    graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    std::exception_ptr failure;  // the first one is the one to report
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
    try {
      graph->capture_end();
    } catch (...) {
      leave_pool(device.index(), pool);
      if (!failure) throw;
    }
    if (failure) std::rethrow_exception(failure);
  }
  return [graph] { graph->replay(); };
}

CudaState find_cuda() {
  CudaState state{true, at::detail::getCUDAHooks().versionCUDART(), "", ""};
  try {
    c10::cuda::device_count_ensure_non_zero();
  } catch (const c10::Error& error) {
    state.why_none = error.what_without_backtrace();
  }
  return state;
}
}  // namespace athanor::ops::device
