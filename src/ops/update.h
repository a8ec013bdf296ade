#pragma once
// The elementwise parts of SGD, Sophia-G and Muon over flat memory on any device (kernels/update.h); LAMB has lamb.h.
// On a device they are kernels (kernels/cuda/update.h), or torch ops where there are none: the host waits for nothing.

#include "ops/update_memory.h"

namespace athanor::ops {

// Each returns the number of weights that changed, as forward reads them; 0 on a device.
int64_t sgd(const kernels::SgdStep& rule, const UpdateMemory& memory, const Tensor& momentum, const OnDevice& there);
/// @param clipped  int64, one element, where the memory is: increased by the number of clipped elements.
int64_t sophia(const kernels::SophiaStep& rule, const UpdateMemory& memory, const Tensor& exp_avg,
               const Tensor& hessian, const Tensor& clipped, const OnDevice& there);
int64_t subtract(float keep, float rate, const UpdateMemory& memory, const OnDevice& there);

/// Multiplies the masters of groups of `size` elements by the groups' factors, fp32 [groups], where the memory is.
/// Their gradients must be zero.
/// @param first  the index of the memory's first element, counted from the first element of group 0.
void scale_groups(const Tensor& factors, int64_t size, int64_t first, const UpdateMemory& memory,
                  const OnDevice& there);

void add_squares(double beta, double tokens, const Tensor& grad, const Tensor& hessian);
/// Replaces the gradient by the direction of momentum.
void momentum_direction(const kernels::MomentumStep& rule, const Tensor& grad, const Tensor& momentum,
                        const OnDevice& there);

}  // namespace athanor::ops
