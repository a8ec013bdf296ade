#pragma once
// Connects tensors to kernels/cuda/: the stream, typed pointers, and whether kernels were compiled.

#include <c10/core/DeviceGuard.h>

#include "kernels/cuda/stream.h"
#include "ops/device.h"
#include "ops/device/played_device.h"

namespace athanor::ops::device {

/// Returns libtorch's current stream on the tensor's device (choices/: one file with libtorch's CUDA part, one
/// without).
void* current_cuda_stream(const Tensor& x);

/// During its lifetime, launches go to the device of `x` and to libtorch's current stream there, in order with
/// libtorch's ops. Launches for a CPU tensor are loops on the host.
class OnStream {
 public:
  explicit OnStream(const Tensor& x) : guard_(x.device()), stream_(stream_of(x)) {}
  operator const kernels::cuda::Stream&() const { return stream_; }

 private:
  static kernels::cuda::Stream stream_of(const Tensor& x) {
    if (x.is_cuda()) return kernels::cuda::Stream::device(current_cuda_stream(x));
    if (x.is_meta()) return kernels::cuda::Stream::guarded(played_device());
    return x.is_cpu() ? kernels::cuda::Stream::host()
                      : kernels::cuda::Stream::guarded(*kernels::cuda::guarded_device());
  }

  c10::DeviceGuard guard_;
  kernels::cuda::Stream stream_;
};

/// True if kernels/cuda/ runs on the tensor's device: on CUDA if nvcc compiled it, on the CPU, on the device that the
/// host plays in tests, and on a CUDA device in a played step.
inline bool has_kernels(const Tensor& x) {
  if (x.is_cuda()) return kernels::cuda::is_compiled();
  if (x.is_meta()) return played_place() == PlayedPlace::kCuda;
  const auto* guarded = kernels::cuda::guarded_device();
  return x.is_cpu() || (x.is_privateuseone() && guarded && guarded->has_kernels());
}

/// How an op on `x` is computed: on the host; by kernels/cuda/; in torch ops, which any device runs.
enum class Form { kHost, kKernels, kPortable };
inline Form form_of(const Tensor& x) {
  if (!takes(x)) return Form::kHost;
  return has_kernels(x) ? Form::kKernels : Form::kPortable;
}

/// Returns ops::pointer for kernels on any device; null for an undefined tensor.
template <class T>
T* data(const Tensor& x) {
  if (!x.defined()) return nullptr;
  ATHANOR_ASSERT(x.scalar_type() == scalar_type_of<T>() && x.is_contiguous());
  if (x.is_meta()) return static_cast<T*>(played_operand(x));
  void* address = x.data_ptr();
  return static_cast<T*>(x.is_privateuseone() ? kernels::cuda::guarded_device()->open(address) : address);
}

inline Tensor contiguous_or_none(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

}  // namespace athanor::ops::device
