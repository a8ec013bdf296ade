#pragma once
// Elementwise updates on a device; those of LAMB are in lamb.h. Masters, states and gradients get the bits of
// kernels/update.h.
//
// All pointers are to the stream's memory. *changed is increased by the number of weights that changed. If `grad_scale`
// is not null it is used in place of the host's; if it is NaN, nothing changes, the gradient included.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/update.h"

namespace athanor::kernels::cuda {

/// *clipped is increased by the number of elements that the rule's clip() changed, unless it is null.
template <class Rule>
void update(const Stream& stream, const Rule& rule, const Masters& masters, const RuleStates<Rule>& states, float* grad,
            float scale, int64_t n, int64_t* changed, int64_t* clipped, const float* grad_scale);

void momentum_direction(const Stream& stream, const MomentumStep& step, float* momentum, float* grad, int64_t n,
                        const float* grad_scale);

void add_squares(const Stream& stream, float beta, float tokens, const float* grad, float* hessian, int64_t n);

}  // namespace athanor::kernels::cuda
