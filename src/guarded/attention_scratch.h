#pragma once
// The memory that libtorch's attention takes on CUDA for the time of a backward, in addition to its results: the
// guarded kernels allocate as much, so that a test can compare an estimate with the device's peak. It is written here
// as libtorch 2.11 does it (flash_api.cpp and attention_backward.cu of its repository), for a GPU with the 132
// multiprocessors of an H100; layout/device_workspace.h has the formulas of the estimate.

#include <ATen/core/Tensor.h>

namespace athanor::guarded {

/// Allocate, and free again. To be called when the results are allocated, as libtorch does.
/// @param offsets  where documents begin; undefined if each sequence is one.
void allocate_flash_scratch(const at::Tensor& q, const at::Tensor& k, const at::Tensor& offsets, bool has_fixed_order);
void allocate_efficient_scratch(const at::Tensor& q, const at::Tensor& offsets, int64_t longest);

}  // namespace athanor::guarded
