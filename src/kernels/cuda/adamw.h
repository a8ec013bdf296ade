#pragma once
// AdamW and the sum of a gradient's squares over flat memory on a device; the update has the bits of kernels/adamw.h.

#include <cstdint>

#include "kernels/adamw.h"
#include "kernels/cuda/stream.h"

namespace athanor::kernels::cuda {

/// kernels::adamw over n elements. *changed, in the stream's memory, is increased by the number of weights that
/// changed. If `grad_scale`, in the stream's memory, is not null, it is used in place of step.grad_scale; if it is NaN,
/// nothing changes, the gradient included: so the host need not know beforehand whether a step is refused.
void adamw(const Stream& stream, const AdamwStep& step, float* master, float* exp_avg, float* exp_avg_sq, float* grad,
           int64_t n, int64_t* changed, const float* grad_scale = nullptr);

/// Does the same with the master as its bf16 rounding and its lower bits (kernels/master.h).
void adamw(const Stream& stream, const AdamwStep& step, Bf16* weight, uint16_t* master_low, float* exp_avg,
           float* exp_avg_sq, float* grad, int64_t n, int64_t* changed, const float* grad_scale = nullptr);

/// Returns the number of doubles that `partials` of sum_of_squares must have.
int64_t sum_of_squares_partials(int64_t n);

/// Sets *out = Σ x², in double throughout, in an order that depends only on n. `partials` is scratch; `partials` and
/// `out` are in the stream's memory.
void sum_of_squares(const Stream& stream, const float* x, int64_t n, double* partials, double* out);

}  // namespace athanor::kernels::cuda
