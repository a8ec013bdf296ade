#pragma once
// The memory of an update, and what the forms of updates share: kernels of the host, kernels of a device, torch ops.

#include "kernels/update.h"
#include "ops/tensor.h"

namespace athanor::ops {

/// The memory of an update: ranges of equal length, one dim, contiguous.
struct UpdateMemory {
  Tensor weight;      ///< fp32: the master; bf16: its rounding
  Tensor master_low;  ///< uint16: its lower bits in bf16; undefined in fp32
  Tensor grad;        ///< fp32; becomes zero or the direction of a step

  bool on_host() const { return ops::on_host(grad); }
  /// Returns whether kernels/cuda/ runs where the memory is.
  bool has_kernels() const;
};

/// What a device gets in place of numbers of the host. Unused for memory of the host.
struct OnDevice {
  Tensor grad_scale;  ///< replaces the rule's: fp32, one element. NaN: nothing changes, the gradient included
  Tensor changed;     ///< int64, one element: increased by the number of weights that changed

  /// Returns whether the step is applied, as a tensor of one element.
  Tensor applies() const { return grad_scale.isnan().logical_not(); }
};

/// Return the masters for kernels of the host and of a device.
kernels::Masters masters_here(const UpdateMemory& memory);
kernels::Masters masters_there(const UpdateMemory& memory);

// In torch ops:

/// Returns the masters in fp32; in fp32 this is the memory itself.
Tensor join_masters(const UpdateMemory& memory);
/// Stores the masters `after` unless the step is refused, and counts the weights that change.
void store_masters(const UpdateMemory& memory, const Tensor& before, const Tensor& after, const OnDevice& there);
/// Sets `to` where `applies`.
void set_where(const Tensor& applies, const Tensor& to, const Tensor& value);

// The fp32 master as a bf16 weight and its lower bits (kernels/master.h), on any device, in torch ops: for what is read
// and written now and then. The optimizer's kernels work on the two parts.

}  // namespace athanor::ops
