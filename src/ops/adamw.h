#pragma once
// AdamW over flat memory on any device, and the sum of squares that clipping needs (kernels/adamw.h).

#include "kernels/adamw.h"
#include "ops/tensor.h"

namespace athanor::ops {

/// The memory of an update: ranges of equal length, one dim, contiguous.
struct AdamwMemory {
  Tensor weight;               ///< fp32: the master; bf16: its rounding
  Tensor master_low;           ///< uint16: its lower bits in bf16; undefined in fp32
  Tensor exp_avg, exp_avg_sq;  ///< fp32
  Tensor grad;                 ///< fp32; becomes zero
};

/// Updates memory of the host. Returns the number of weights that changed.
int64_t adamw(const kernels::AdamwStep& rule, const AdamwMemory& memory);

/// Queues the update of memory on a device.
/// @param grad_scale  in place of rule.grad_scale: fp32, one element, on the device. NaN: nothing changes, the gradient
///                    included.
/// @param changed     int64, one element, on the device: increased by the number of weights that changed.
void adamw(const kernels::AdamwStep& rule, const AdamwMemory& memory, const Tensor& grad_scale, const Tensor& changed);

/// Returns Σ x² of a tensor on a device, fp64, there. The host waits for nothing.
Tensor sum_of_squares(const Tensor& x);

}  // namespace athanor::ops
