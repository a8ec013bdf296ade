#pragma once
// The elementwise parts of SGD, Sophia-G and Muon on a device; LAMB's are in lamb.h. Masters, states and gradients get
// the bits of kernels/update.h.
//
// All pointers are to the stream's memory. *changed is increased by the number of weights that changed. If `grad_scale`
// is not null it is used in place of the step's; if it is NaN, nothing changes, the gradient included.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/update.h"

namespace athanor::kernels::cuda {

void sgd(const Stream& stream, const SgdStep& step, const Masters& masters, float* momentum, float* grad, int64_t n,
         int64_t* changed, const float* grad_scale);

/// *clipped is increased by the number of elements whose step was clipped.
void sophia(const Stream& stream, const SophiaStep& step, const Masters& masters, float* exp_avg, const float* hessian,
            float* grad, int64_t n, int64_t* changed, int64_t* clipped, const float* grad_scale);

void subtract(const Stream& stream, float keep, float rate, const Masters& masters, float* direction, int64_t n,
              int64_t* changed, const float* grad_scale);

void momentum_direction(const Stream& stream, const MomentumStep& step, float* momentum, float* grad, int64_t n,
                        const float* grad_scale);

void add_squares(const Stream& stream, float beta, float tokens, const float* grad, float* hessian, int64_t n);

}  // namespace athanor::kernels::cuda
