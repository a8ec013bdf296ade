#pragma once
// The fp32 master as a bf16 weight and its lower bits (kernels/master.h), on any device, in torch ops: for what is read
// and written now and then. The optimizer's kernels work on the two parts.

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns the master of `weight` (bf16), fp32. `low` (uint16) has its lower bits; undefined: they are zero.
Tensor join_master(const Tensor& weight, const Tensor& low);

/// Stores fp32 `values` into `weight`, and their lower bits into `low` if it is defined. The host waits for nothing.
void split_master(const Tensor& values, const Tensor& weight, const Tensor& low);

}  // namespace athanor::ops
