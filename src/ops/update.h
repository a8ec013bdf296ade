#pragma once
// Elementwise updates of flat memory on any device (kernels/update.h); LAMB has lamb.h, and AdamW adamw.h.
// On a device they are kernels (kernels/cuda/update.h), or torch ops where there are none: the host waits for nothing.

#include <array>

#include "ops/update_memory.h"

namespace athanor::ops {

/// Updates masters and states by a rule of kernels/update_rules.h; the gradient is set to zero.
/// @param grad_scale  the gradient is multiplied by it, unless the rule takes a direction.
/// @param states      of the rule, in its order: fp32, as long as the gradient.
/// @param clipped     int64, one element, where the memory is: increased by the number of elements that the rule's
///        clip() changed; undefined: they are not counted.
/// @return the number of weights that changed, as forward reads them; 0 on a device.
template <class Rule>
int64_t update(const Rule& rule, float grad_scale, const UpdateMemory& memory,
               const std::array<Tensor, Rule::kStates>& states, const OnDevice& there, const Tensor& clipped = {});

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
