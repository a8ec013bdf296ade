#pragma once
// The elementwise parts of SGD, LAMB, Sophia-G and Muon over flat memory on any device (kernels/update.h). On a device
// they are kernels (kernels/cuda/update.h), or torch ops where there are none: the host waits for nothing.

#include "kernels/update.h"
#include "ops/tensor.h"

namespace athanor::ops {

/// The memory of an update: ranges of equal length, one dim, contiguous.
struct UpdateMemory {
  Tensor weight;      ///< fp32: the master; bf16: its rounding
  Tensor master_low;  ///< uint16: its lower bits in bf16; undefined in fp32
  Tensor grad;        ///< fp32; becomes zero or the direction of a step
};

/// What a device gets in place of numbers of the host. Unused for memory of the host.
struct OnDevice {
  Tensor grad_scale;  ///< replaces the rule's: fp32, one element. NaN: nothing changes, the gradient included
  Tensor changed;     ///< int64, one element: increased by the number of weights that changed
};

// Each returns the number of weights that changed, as forward reads them; 0 on a device.
int64_t sgd(const kernels::SgdStep& rule, const UpdateMemory& memory, const Tensor& momentum, const OnDevice& there);
/// @param clipped  int64, one element, where the memory is: increased by the number of clipped elements.
int64_t sophia(const kernels::SophiaStep& rule, const UpdateMemory& memory, const Tensor& exp_avg,
               const Tensor& hessian, const Tensor& clipped, const OnDevice& there);
/// @param rate  in place of a number: fp32, one element, where the memory is; undefined: `factor` alone. The step is
///              factor · rate · direction.
int64_t subtract(double keep, double factor, const Tensor& rate, const UpdateMemory& memory, const OnDevice& there);

/// Multiplies the masters by factors: fp32, one for all or one for each, where the memory is. Their gradients must be
/// zero; on the host there is one factor.
void scale(const Tensor& factors, const UpdateMemory& memory, const OnDevice& there);

/// Replaces the gradient by LAMB's direction.
/// @param squares  fp64 [2], where the memory is: the sums of squares of masters and directions are added. The sums of
///                 blocks of fixed size are added in order, so that threads change no bit.
void lamb_direction(const kernels::LambStep& rule, const UpdateMemory& memory, const Tensor& exp_avg,
                    const Tensor& exp_avg_sq, const Tensor& squares, const OnDevice& there);
void add_squares(double beta, double tokens, const Tensor& grad, const Tensor& hessian);
/// Replaces the gradient by the direction of momentum.
void momentum_direction(const kernels::MomentumStep& rule, const Tensor& grad, const Tensor& momentum,
                        const OnDevice& there);

}  // namespace athanor::ops
