#pragma once
// AdamW over flat memory on any device (kernels/adamw.h).

#include "kernels/adamw.h"
#include "ops/update_memory.h"

namespace athanor::ops {

/// The memory of an update: ranges of equal length, one dim, contiguous.
struct AdamwMemory {
  Tensor weight;               ///< fp32: the master; bf16: its rounding
  Tensor master_low;           ///< uint16: its lower bits in bf16; undefined in fp32
  Tensor exp_avg, exp_avg_sq;  ///< fp32
  Tensor grad;                 ///< fp32; becomes zero
};

/// Updates the memory, with the numbers of `there` where it is on a device: then the host does not wait, and
/// there.grad_scale takes the place of rule.grad_scale. NaN: nothing changes, the gradient included.
/// @return the number of weights that changed; 0 on a device, where there.changed is increased by it.
int64_t adamw(const kernels::AdamwStep& rule, const AdamwMemory& memory, const OnDevice& there = {});

}  // namespace athanor::ops
