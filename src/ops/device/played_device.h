#pragma once
// The device of a played step (ops/played.h), which does no work: our kernels report themselves when they are launched,
// and libtorch's attention and grouped products have forms for meta tensors with the memory that they take on CUDA.

#include "kernels/cuda/stream.h"
#include "ops/played.h"

namespace athanor::ops::device {

/// Gives meta tensors the events and the ops that those of a device have. A second call does nothing.
void install_played_device();

kernels::cuda::GuardedDevice& played_device();

/// Returns where a kernel "finds" a meta tensor: an address that is not null, at which nothing may be read or written.
/// The next launch of this thread reports the bytes of all operands since the last.
void* played_operand(const Tensor& x);

}  // namespace athanor::ops::device
