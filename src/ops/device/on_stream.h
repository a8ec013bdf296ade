#pragma once
// Connects tensors to kernels/cuda/: the stream, typed pointers, and whether kernels were compiled.

#include <c10/core/DeviceGuard.h>

#include "kernels/cuda/stream.h"
#include "ops/tensor.h"

namespace athanor::ops::device {

/// Returns libtorch's current stream on the tensor's device (choices/: one file with libtorch's CUDA part, one
/// without).
void* current_cuda_stream(const Tensor& x);

/// During its lifetime, launches go to the device of `x` and to libtorch's current stream there, in order with
/// libtorch's ops. Launches for a CPU tensor are loops on the host.
class OnStream {
 public:
  explicit OnStream(const Tensor& x)
      : guard_(x.device()),
        stream_(x.is_cuda() ? kernels::cuda::Stream::device(current_cuda_stream(x)) : kernels::cuda::Stream::host()) {}
  operator const kernels::cuda::Stream&() const { return stream_; }

 private:
  c10::DeviceGuard guard_;
  kernels::cuda::Stream stream_;
};

/// True if kernels/cuda/ runs on the tensor's device: on CUDA if nvcc compiled it, and on the CPU.
inline bool has_kernels(const Tensor& x) { return x.is_cuda() ? kernels::cuda::is_compiled() : x.is_cpu(); }

/// Returns ops::pointer for any device; null for an undefined tensor.
template <class T>
T* data(const Tensor& x) {
  if (!x.defined()) return nullptr;
  ATHANOR_ASSERT(x.scalar_type() == scalar_type_of<T>() && x.is_contiguous());
  return static_cast<T*>(x.data_ptr());
}

inline Tensor contiguous_or_none(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

}  // namespace athanor::ops::device
