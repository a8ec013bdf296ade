#pragma once
// The fp32 master as a bf16 weight and its lower bits (kernels/master.h), on any device: for what is read and written
// now and then. The optimizer's kernels work on the two parts.

#include <span>

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns the master of `weight` (bf16), fp32. `low` (uint16) has its lower bits; undefined: they are zero.
Tensor join_master(const Tensor& weight, const Tensor& low);

/// Stores fp32 `values` into `weight`, and their lower bits into `low` if it is defined. The host waits for nothing.
void split_master(const Tensor& values, const Tensor& weight, const Tensor& low);

/// The lower bits of a part of a master.
struct LowBits {
  int64_t first;  ///< the first element that has them
  Tensor bits;    ///< uint16
};

/// Returns the master of `weight` (bf16 or fp32) where it is; an fp32 weight itself. Elements without lower bits are
/// those of the weight.
Tensor join_master(const Tensor& weight, std::span<const LowBits> low);

/// Copies the master of `weight` (bf16 or fp32, contiguous, as many elements as `out`) to the host. Elements without
/// lower bits are those of the weight. The host waits. Any thread may call it.
void fetch_master(const Tensor& weight, std::span<const LowBits> low, std::span<float> out);

/// Sets the master of `weight`, as in fetch_master, to values of the host. Lower bits that have no place are lost. The
/// host waits. Threads may write different memory.
void send_master(std::span<const float> values, const Tensor& weight, std::span<const LowBits> low);

}  // namespace athanor::ops
